// What servers of parameters are made with, and what they say to those who use them.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/codec/codec.h"
#include "parallel/server/compression/compression.h"
#include "parallel/server/consistency/server_policy.h"

namespace troupe::parallel {

struct ServerOptions {
  std::string optimizer =
      "sgd";              ///< of optim::make(); lamb, adafactor and muon need tensors that are not cut
  ValueMap options = {};  ///< of the optimizer
  ServerPolicy policy = {};
  int64_t trainers = 1;              ///< nobody reads before so many have joined
  bool lr_by_delay = false;          ///< a step with delay d has the rate lr / (1 + d) (Zhang et al. 2016)
  Compression pull = {}, push = {};  ///< of what trainers read, and of what they send
};

/// What became of a push.
struct Pushed {
  int64_t version = 0;  ///< of the values now
  bool late = false;    ///< dropped: its step had closed without it
};

struct ServerReport {
  std::string policy;
  int64_t version = 0;                         ///< updates so far
  int64_t open_step = 0;                       ///< the oldest that not all have pushed
  std::vector<std::string> trainers, missing;  ///< that are there; of them, who has not pushed that step
  std::vector<std::pair<int64_t, int64_t>>
      delays;                               ///< and how many gradients had it, as in StalenessStatistics
  int64_t late = 0, aborted = 0, lost = 0;  ///< as in StalenessStatistics
  std::string last_loss;                    ///< what losing a trainer meant, the last time
  /// "ssp(2), version 12: trainers a, b; step 4 is open, b is missing; gradients by delay 0: 20, 1: 3; late
  /// 0, aborted 0, lost 0".
  std::string str() const;
};

}  // namespace troupe::parallel
