// The optimizers of this library, compiled once.
#include "optim/optim.h"

namespace troupe::optim {

template class Grouped<AdadeltaOptions>;
template class Grouped<AdafactorOptions>;
template class Grouped<AdagradOptions>;
template class Grouped<AdamOptions>;
template class Grouped<AdamWOptions>;
template class Grouped<AdamaxOptions>;
template class Grouped<LAMBOptions>;
template class Grouped<LionOptions>;
template class Grouped<MuonOptions>;
template class Grouped<NAdamOptions>;
template class Grouped<RAdamOptions>;
template class Grouped<RMSpropOptions>;
template class Grouped<RpropOptions>;
template class Grouped<SGDOptions>;

}  // namespace troupe::optim
