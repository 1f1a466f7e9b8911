// The module troupe._core: script/ with Python's objects around it.
#include "python/conversion.h"

NB_MODULE(_core, m) {
  using namespace troupe::python;
  nb::set_leak_warnings(false);  // what lives at the end of the interpreter goes with the process
  m.doc() = "What the package troupe is made of.";
  open_errors(m);
  open_values(m);
  open_tensors(m);
  open_modules(m);
  open_cluster(m);
  open_optimizers(m);
  open_parallel(m);
  open_servers(m);
  open_jobs(m);
  open_pools(m);
  open_language_models(m);
  open_libraries(m);
  open_drawing(m);
  open_feeds(m);
}
