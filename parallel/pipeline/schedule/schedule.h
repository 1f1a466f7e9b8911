// Schedules as data: what each worker of a pipeline does in one step, in order.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/pipeline/schedule/stage_map.h"

namespace troupe::parallel {

/// What a stage does with one micro-batch.
enum class Work : uint8_t {
  forward,   ///< F
  backward,  ///< B: both parts
  input,     ///< I: the gradient of the stage's input, which the stage before waits for
  weight,    ///< W: the gradients of its parameters
};

struct Action {
  Work work = Work::forward;
  int micro_batch = 0;
  int chunk = 0;
  bool operator==(const Action&) const = default;
  /// "F3", and "F3.1" of another chunk than 0.
  std::string str() const;
};

using Actions = std::vector<Action>;

/// The rows of p workers, each with v chunks of the model.
///
/// As text, to print, to write by hand, to keep in a file; '#' begins a comment:
///
///   # 1f1b, 2 workers, 3 micro-batches
///   w0: F0 F1 B0 F2 B1 B2
///   w1: F0 B0 F1 B1 F2 B2
///
/// "w0=0,3:" begins the row of a worker whose chunks are stages 0 and 3; without that, chunk c of worker w is
/// stage c * p + w.
struct Schedule {
  std::string name;
  int micro_batches = 0;
  int chunks = 1;
  std::vector<Actions> rows;
  std::vector<std::vector<int64_t>> stages_of = {};  ///< by worker and chunk; empty: StageMap::loop()

  StageMap map() const { return stages_of.empty() ? StageMap::loop(workers(), chunks) : StageMap(stages_of); }
  int workers() const { return static_cast<int>(rows.size()); }
  int stages() const { return workers() * chunks; }
  std::string str() const;
};

/// Reads the text form. The number of micro-batches and of chunks is the highest that is named, plus one.
/// `invalid`, naming line and word, for what is no action, and for rows that are missing or doubled; whether
/// the schedule can run, check() says.
Schedule parse_schedule(std::string_view text);

// ---- generators, for `workers` stages and `micro_batches`, both at least 1 (else `invalid`)
/// All forward, then all backward. Huang and others, "GPipe" (2019).
Schedule gpipe(int workers, int micro_batches);
/// One forward, one backward: worker i keeps at most workers - i micro-batches.
Schedule one_f_one_b(int workers, int micro_batches);
/// The same with several chunks of the model on each worker: less idle time, more messages. Narayanan and
/// others, "Efficient large-scale language model training on GPU clusters" (2021). `invalid` unless
/// micro_batches is a multiple of workers.
Schedule interleaved(int workers, int micro_batches, int chunks);
/// Backward in two parts, so that weight gradients fill what 1F1B leaves idle; every worker keeps at most
/// `workers` micro-batches. Qi and others, "Zero bubble pipeline parallelism" (2023).
Schedule zb_h1(int workers, int micro_batches);
/// The same with 2 workers - 1 micro-batches: in a steady state no worker is idle.
Schedule zb_h2(int workers, int micro_batches);
/// Several chunks on each worker, all micro-batches through one after the other: parameters that are gathered
/// for a chunk serve all of them. Lamy-Poirier, "Breadth-first pipeline parallelism" (2022).
Schedule looped_bfs(int workers, int micro_batches, int chunks);
/// Two chunks as StageMap::v() has them, backward in two parts: no worker is idle in a steady state, and each
/// keeps what it keeps under 1F1B. Qi and others, "Pipeline parallelism with controllable memory" (2024).
Schedule zb_v(int workers, int micro_batches);
/// Forward of one micro-batch and backward of another follow each other, on the same stages: what a rank
/// waits for in one can lie under the other. DualPipe (DeepSeek-AI, "DeepSeek-V3 technical report", 2024)
/// without its second copy of the parameters; the two parts of a backward as there.
Schedule dualpipe_v(int workers, int micro_batches);

}  // namespace troupe::parallel
