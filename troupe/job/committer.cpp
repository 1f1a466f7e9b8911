#include "troupe/job/committer.h"

#include <string>
#include <utility>

#include "core/base/error.h"

namespace troupe::internal {

// A checkpoint that is not made: training goes on, unless it was to be the last one, or that has become a
// habit, or never went well.
Committer::Actions Committer::missed(Actions before) {
  using enum Action;
  ++misses_;
  before.push_back(miss);
  if (commits_ == 0 || misses_ >= kMostMisses || last_) {
    state_ = State::idle;
    ending_ = false;
    before.push_back(fail);
    return before;
  }
  return go_on(std::move(before));
}

// Nothing is being made any more.
Committer::Actions Committer::go_on(Actions before) {
  using enum Action;
  state_ = State::idle;
  if (!std::exchange(ending_, false)) return before;
  last_ = true;
  state_ = State::settling;
  before.push_back(settle);
  return before;
}

Committer::Actions Committer::on(Event event) {
  using enum Action;
  switch (state_) {
    case State::idle:
      if (event == Event::worker_lost) return {};  // the next call says so
      if (event != Event::due && event != Event::loop_ends) break;
      last_ = event == Event::loop_ends;
      state_ = State::settling;
      return {settle};
    case State::settling:
      if (event == Event::at_rest) {
        state_ = State::snapshot;
        return {take_snapshots};
      }
      if (event == Event::not_at_rest) return missed({});
      if (event != Event::worker_lost) break;
      state_ = State::idle;
      return {fail};
    case State::snapshot:
      if (event == Event::snapshots) {
        state_ = State::writing;
        return last_ ? Actions{write, wait} : Actions{write};
      }
      if (event == Event::refused) return missed({drop});
      if (event != Event::worker_lost) break;
      state_ = State::idle;
      return {fail};
    case State::writing:
      if (event == Event::written) {
        state_ = State::index;
        return {write_index};
      }
      [[fallthrough]];
    case State::index:
      if (event == Event::due) {
        ++skipped_;
        return {skip};
      }
      if (event == Event::loop_ends) {
        ending_ = true;
        return {wait};
      }
      if (event == Event::not_written) return missed({abandon});
      if (event == Event::committed && state_ == State::index) {
        ++commits_;
        misses_ = 0;
        return go_on({announce});
      }
      if (event != Event::worker_lost) break;
      state_ = State::idle;  // nothing more is saved: the driver's next call fails, or the end of its loop
      if (std::exchange(ending_, false) || last_) return {abandon, fail};
      return {abandon, miss};
  }
  throw_invalid("[job] event " + std::to_string(static_cast<int>(event)) + " in state " +
                std::to_string(static_cast<int>(state_)) + " of a checkpoint");
}

}  // namespace troupe::internal
