// The page of `troupe top`, as text of any width.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tools/watch/report.h"

namespace troupe::tools {

/// What the keys have chosen.
struct TopView {
  char sort = 'w';             ///< w: number; b: busy; c: cpu; q: queued; m: memory; s: sent
  std::string filter;          ///< of rows: what worker or actor contain
  std::optional<size_t> open;  ///< the row of the worker whose actors and methods are shown
  size_t at = 0;               ///< the row that is chosen
};

struct TopPage {
  std::vector<std::string> lines;
  size_t rows = 0;                    ///< of workers
  std::optional<size_t> chosen = {};  ///< the line of the row that is chosen
};

/// `cause`: the first line of waits, if it is old enough to matter; else empty.
TopPage top_page(const JobReport& now, const JobReport* before, const std::string& cause, const TopView& view,
                 size_t columns);

}  // namespace troupe::tools
