// Who sends what to whom in a pipeline: from stage to stage, and skip connections past those between.
#pragma once
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/codec/codec.h"

namespace troupe::parallel {

/// The place of something that comes to a stage. Forward, slot 0 is the output of the stage before, and slot
/// k + 1 the k-th skip that the stage takes. Backward, slot 0 is the gradient of the stage's output, and
/// those behind it are the gradients of its skips, in the order of StageLinks::gives, of each from all who
/// take it.
struct SkipLink {
  int64_t stage = 0, slot = 0;
  bool operator==(const SkipLink&) const = default;
};

}  // namespace troupe::parallel

template <>
struct troupe::Codec<troupe::parallel::SkipLink> {
  static std::string name() { return "link of a pipeline"; }
  static Value to(parallel::SkipLink link);
  static parallel::SkipLink from(Value value);
};

namespace troupe::parallel {

/// The skip connections of one stage.
struct StageLinks {
  std::vector<std::vector<SkipLink>> gives;  ///< where each skip that it makes goes (forward slots)
  std::vector<SkipLink> takes;  ///< where the gradient of each that it takes goes (backward slots)
  /// How many values a forward or a backward of one micro-batch waits for.
  size_t slots(bool forward) const;
  /// Where that of a slot other than 0 comes from.
  int64_t source(bool forward, size_t slot) const;
};

/// Names of skips, by stage: those that it makes, and those that it takes.
struct SkipNames {
  std::vector<std::string> gives, takes;
};

/// `invalid`, naming skip and stages: made twice, taken but not made by an earlier stage, taken twice by one
/// stage, made but never taken.
std::vector<StageLinks> connect_skips(const std::vector<SkipNames>& stages);

/// What has come for actions of one worker, from several stages, until all of it is there.
class JoinBuffer {
 public:
  /// True if that was the last of `slots` values. `invalid` if the slot is not one of them, or is taken.
  bool put(bool forward, SkipLink to, int64_t micro_batch, size_t slots, Value what);
  /// All values, by slot; empty if nothing came.
  ValueList take(bool forward, int64_t stage, int64_t micro_batch);

 private:
  struct Parts {
    ValueList values;
    std::vector<bool> here;
    size_t missing = 0;
  };
  std::map<std::tuple<bool, int64_t, int64_t>, Parts> parts_;  // forward?, stage, micro-batch
};

}  // namespace troupe::parallel
