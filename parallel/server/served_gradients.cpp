#include "parallel/server/served_gradients.h"

#include "parallel/server/client_base.h"
#include "parallel/server/push_part.h"
#include "parallel/server/server.h"
#include "parallel/server/table.h"

namespace troupe::parallel {

optim::ContextGradients gradients_of(const Served& served) {
  return internal::parallel::gradients_in(served.servers, internal::parallel::servers_now(served),
                                          served.pull.on() || served.push.on());
}

optim::ContextGradients gradients_of(const ServedTable& table) {
  return internal::parallel::gradients_in(table.servers, internal::parallel::servers_now(table),
                                          table.pull.on() || table.push.on());
}

}  // namespace troupe::parallel
