#include "optim/grouped.h"

#include "optim/adam.h"
#include "optim/adamax.h"
#include "optim/lamb.h"
#include "optim/nadam.h"
#include "optim/rmsprop.h"
#include "optim/rprop.h"
#include "optim/sgd.h"

namespace troupe::optim {

template class Grouped<AdadeltaOptions>;
template class Grouped<AdagradOptions>;
template class Grouped<AdamOptions>;
template class Grouped<AdamWOptions>;
template class Grouped<AdamaxOptions>;
template class Grouped<LAMBOptions>;
template class Grouped<LionOptions>;
template class Grouped<NAdamOptions>;
template class Grouped<RAdamOptions>;
template class Grouped<RMSpropOptions>;
template class Grouped<RpropOptions>;
template class Grouped<SGDOptions>;

}  // namespace troupe::optim
