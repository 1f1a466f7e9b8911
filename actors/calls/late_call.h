// A call that has left before all of its arguments were there: the caller's half.
//
// Each late argument is the result of another call, whose callee sends it straight to where the late call
// waits (HandOver). Answers of these calls come to the caller all the same. They say that the result has gone
// there; or they bring it, because it was on its way when the caller asked: then the caller passes it on; or
// they bring an error, which is that of the late call. Its own answer may be here before theirs, since it
// comes by another way.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/mutex.h"

namespace troupe::internal::actors {

/// Pure, thread-safe. Of one late call; its arguments are numbered from 0.
class LateCall {
 public:
  explicit LateCall(size_t arguments) : open_(arguments, true), left_(arguments) {}

  enum class Answer : uint8_t { handed_over, value, error };
  struct Next {
    enum What : uint8_t {
      nothing,
      pass_on,  ///< this value has to be sent to where the call waits
      fail      ///< the call fails with this error; its callee has to be told that nobody wants it
    } what = nothing;
    bool whole = false;            ///< it was the last: the call's own time begins now
    std::vector<size_t> unwanted;  ///< arguments whose calls nobody wants any more
  };
  /// The call that makes argument `i` has been answered. A second answer is ignored.
  Next answered(size_t i, Answer answer);

  /// It has ended. `well`: with a result, so its arguments were there, and the answers of the calls that made
  /// them are on the way; else with an error, or since nobody wants it. Arguments whose calls nobody wants.
  std::vector<size_t> ended(bool well);

  bool over() const;

 private:
  std::vector<size_t> close(bool give_up) TROUPE_REQUIRES(mutex_);
  mutable Mutex mutex_;
  std::vector<bool> open_ TROUPE_GUARDED_BY(mutex_);  // not answered yet
  size_t left_ TROUPE_GUARDED_BY(mutex_);             // of those
  bool over_ TROUPE_GUARDED_BY(mutex_) = false;
};

}  // namespace troupe::internal::actors
