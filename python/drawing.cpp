// Line charts in Python, as the examples draw theirs.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/conversion.h"
#include "tools/draw/chart.h"

namespace troupe::python {

void open_drawing(nb::module_& m) {
  m.def("render_chart", [](const std::string& title, const std::string& x_label, const std::string& y_label,
                           const std::vector<std::pair<std::string, std::vector<double>>>& curves) {
    tools::Chart chart{.title = title, .x_label = x_label, .left_label = y_label, .series = {}};
    for (const auto& [name, values] : curves) {
      tools::Series& line = chart.series.emplace_back(tools::Series{.name = name});
      for (size_t i = 0; i < values.size(); ++i) line.add(static_cast<double>(i), values[i]);
    }
    return tools::render_chart(chart);
  });
}

}  // namespace troupe::python
