// Which policy: by its name, or by what stages cost and how much may be alive.
#pragma once
#include <string>
#include <string_view>

#include "parallel/pipeline/schedule/simulate.h"

namespace troupe::parallel {

/// "gpipe", "1f1b", "interleaved" and "looped-bfs" (with the number of chunks given), "zb-h1", "zb-h2",
/// "zb-v" and "dualpipe-v" (with 2 chunks), "credits(3)" for every worker, "credits(4, 3, 2, 1)" for each, or
/// a table in its text form, which is checked. `invalid` for anything else, and for a table of other numbers
/// of workers, chunks or micro-batches.
Policy make_policy(const std::string& text, int workers, int micro_batches, int chunks = 1);
/// Whether stages of the policy of this name lie there and back (StageMap::v()).
bool goes_back(std::string_view name);

struct Choice {
  Policy policy;
  Simulation predicted;  ///< of one step
  std::string why;       ///< one line: what it was chosen over
};

/// "auto": the policy of the shortest step, then the one that keeps fewest micro-batches alive. `times`: of
/// each stage, or one for all. `most_live`: how many micro-batches each worker may keep, or one number for
/// all; empty: any number. `invalid` below 1.
Choice choose(int workers, int micro_batches, const std::vector<StageTimes>& times = {{}},
              std::vector<int> most_live = {});

}  // namespace troupe::parallel
