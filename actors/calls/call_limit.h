// How long a call may take, and the words for one that gets no answer in time.
#pragma once
#include <string>

#include "core/base/clock.h"

namespace troupe::internal::actors {

/// How long a call may take, and who said so.
struct CallLimit {
  enum class From : uint8_t {
    call,    ///< with_timeout()
    worker,  ///< the cluster's, for calls that name none
    caller,  ///< what was left to the call that made this one
  };
  TimePoint made{}, end = TimePoint::max();  ///< max: no limit
  From from = From::worker;
};

/// So long before its end the callee of a call is asked what it is doing: an answer that comes later finds
/// nobody.
Duration lead_of(const CallLimit& limit);

/// "59.8 s", "250 ms".
std::string text_of(Duration d);

/// The text of the error at the end of `limit`: "[call] Trainer::train on w1 gave no answer within 60 s,
/// ...". `call`: "Trainer::train on w1". `status`: what its worker said, in a sentence; empty: nothing.
std::string overdue(const std::string& call, const std::string& worker, const CallLimit& limit, TimePoint now,
                    const std::string& status);

}  // namespace troupe::internal::actors
