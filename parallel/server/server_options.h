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

/// A trainer as servers know it: its name, and who speaks for it, so that two of one name are told apart.
struct TrainerId {
  TrainerId() = default;
  TrainerId(std::string name, uint64_t client = 0) : name(std::move(name)), client(client) {}
  TrainerId(const char* name) : name(name) {}
  std::string name;
  uint64_t client = 0;  ///< of a Client: its number in the cluster; 0: of who calls the server by itself
  uint64_t call = 0;    ///< of that Client: which one, so that it counts once if it is made again; 0: any
  uint64_t heard = 0;   ///< its last call that the server before this one has answered; 0: there is none
};

struct ServerOptions {
  std::string optimizer =
      "sgd";              ///< of optim::make(); lamb, adafactor and muon need tensors that are not cut
  ValueMap options = {};  ///< of the optimizer
  ServerPolicy policy = {};
  int64_t trainers = 1;              ///< nobody reads before so many have joined
  bool lr_by_delay = false;          ///< a step with delay d has the rate lr / (1 + d) (Zhang et al. 2016)
  Compression pull = {}, push = {};  ///< of what trainers read, and of what they send
  /// The worker of servers that have and do what these do, and go on when a worker of these is lost: a push,
  /// or what a trainer reads, is answered when they have it, too. Empty: who loses a server loses its values.
  std::string backup = {};
};

/// What became of a push.
struct Pushed {
  int64_t version = 0;  ///< of the values now
  bool late = false;    ///< dropped: its step had closed without it
};

struct ServerReport {
  std::string policy;
  int64_t version = 0;                              ///< updates so far
  int64_t open_step = 0;                            ///< the oldest that not all have pushed
  std::vector<std::string> trainers, missing;       ///< that are there; of them, who has not pushed that step
  std::vector<std::pair<int64_t, int64_t>> delays;  ///< and how many gradients had it, as in StalenessLedger
  std::vector<std::pair<int64_t, double>> weights;  ///< of these, by delay
  int64_t late = 0, aborted = 0, lost = 0;          ///< as in StalenessLedger
  std::string last_loss;                            ///< what losing a trainer meant, the last time
  std::string backup;  ///< "has a backup on w5", "goes on for w1, which is lost", "has lost its backup on w5"
  /// "ssp(2), version 12: trainers a, b; step 4 is open, b is missing; gradients by delay 0: 20 of weight
  /// 640, 1: 3 of weight 96; late 0, aborted 0, lost 0".
  std::string str() const;
};

}  // namespace troupe::parallel

template <>
struct troupe::Codec<troupe::parallel::TrainerId> {
  static std::string name() { return "trainer"; }
  static Value to(const parallel::TrainerId& t) {
    if (t.client == 0) return t.name;
    return ValueList{t.name, static_cast<int64_t>(t.client), static_cast<int64_t>(t.call),
                     static_cast<int64_t>(t.heard)};
  }
  /// A name alone will do.
  static parallel::TrainerId from(Value v) {
    if (auto* parts = v.get_if<ValueList>(); parts && parts->size() == 4) {
      parallel::TrainerId who(Codec<std::string>::from(std::move((*parts)[0])),
                              static_cast<uint64_t>(Codec<int64_t>::from(std::move((*parts)[1]))));
      who.call = static_cast<uint64_t>(Codec<int64_t>::from(std::move((*parts)[2])));
      who.heard = static_cast<uint64_t>(Codec<int64_t>::from(std::move((*parts)[3])));
      return who;
    }
    return Codec<std::string>::from(std::move(v));
  }
};
