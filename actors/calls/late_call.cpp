#include "actors/calls/late_call.h"

namespace troupe::internal::actors {

LateCall::Next LateCall::answered(size_t i, Answer answer) {
  Lock lock(mutex_);
  Next next;
  if (over_ || !open_[i]) return next;
  open_[i] = false;
  --left_;
  if (answer == Answer::error) {
    next.what = Next::fail;
    next.unwanted = close(true);
    return next;
  }
  if (answer == Answer::value) next.what = Next::pass_on;
  next.whole = left_ == 0;
  return next;
}

std::vector<size_t> LateCall::ended(bool well) {
  Lock lock(mutex_);
  return over_ ? std::vector<size_t>{} : close(!well);
}

bool LateCall::over() const {
  Lock lock(mutex_);
  return over_;
}

std::vector<size_t> LateCall::close(bool give_up) {
  over_ = true;
  std::vector<size_t> unwanted;
  for (size_t i = 0; give_up && i < open_.size(); ++i)
    if (open_[i]) unwanted.push_back(i);
  return unwanted;
}

}  // namespace troupe::internal::actors
