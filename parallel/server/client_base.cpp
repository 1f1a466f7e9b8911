#include "parallel/server/client_base.h"

#include <algorithm>

#include "rref/ref_table.h"

namespace troupe::internal::parallel {

std::string next_client_path(actors::Worker& worker) {
  return internal::rref::RefTable::of(worker)->path_of_next("client");
}

Future<Pushed> joined(const std::vector<Future<Pushed>>& pushes) {
  return all(pushes).then([](const std::vector<Pushed>& all) {
    Pushed out = all.at(0);
    for (const Pushed& p : all) out = {std::min(out.version, p.version), out.late || p.late};
    return out;
  });
}

}  // namespace troupe::internal::parallel
