#include "troupe/attempt/machine.h"

#include <string>

#include "core/base/error.h"

namespace troupe::internal {

AttemptMachine::Action AttemptMachine::end(Action how) {
  state_ = State::over;
  return how;
}

// Rest comes before everything: a call that is still in a mailbox would move what an undo has set back.
AttemptMachine::Action AttemptMachine::repair(bool undoes, bool again) {
  undo_ = undoes, again_ = again;
  state_ = State::resting;
  return Action::rest;
}

// Empty: that cannot happen then.
std::optional<AttemptMachine::Action> AttemptMachine::repaired(Event event) {
  if (event != Event::done && event != Event::lost) return std::nullopt;
  if (state_ == State::resting) {
    state_ = undo_ ? State::undoing : State::forming;
    return undo_ ? Action::undo : Action::form;
  }
  if (event == Event::lost) return repair(undo_, again_);
  if (state_ == State::undoing) {
    state_ = State::forming;
    return Action::form;
  }
  if (!again_) return end(Action::finish);
  state_ = State::pass;
  return Action::run;
}

AttemptMachine::Action AttemptMachine::on(Event event) {
  if (event == Event::refused && state_ != State::over) return end(Action::give_up);
  switch (state_) {
    case State::idle:
      if (event == Event::missing) return repair(false, true);
      if (event == Event::stale) {
        state_ = State::keeping;
        return Action::keep;
      }
      if (event != Event::begin) break;
      state_ = State::pass;
      return Action::run;
    case State::keeping:
      if (event == Event::lost) return repair(false, true);
      if (event != Event::done) break;
      state_ = State::pass;
      return Action::run;
    case State::pass:
      if (event == Event::returned) return end(Action::finish);
      if (event == Event::lost) {
        ++redone_;
        return repair(true, true);
      }
      if (event != Event::prepared) break;
      state_ = State::prepared;
      return Action::go_on;
    case State::prepared:
      if (event == Event::lost) {
        lost_ = true;
        return Action::go_on;
      }
      if (event != Event::committed) break;
      state_ = State::stands;
      return Action::go_on;
    case State::stands:
      if (event == Event::lost) {
        lost_ = true;
        return Action::go_on;
      }
      if (event == Event::prepared) {  // of a second optimizer
        state_ = State::prepared;
        return Action::go_on;
      }
      if (event != Event::returned) break;
      return lost_ ? repair(false, false) : end(Action::finish);
    case State::resting:
    case State::undoing:
    case State::forming:
      if (const auto next = repaired(event)) return *next;
      break;
    case State::over:
      break;
  }
  throw_invalid("[attempt] event " + std::to_string(static_cast<int>(event)) + " in state " +
                std::to_string(static_cast<int>(state_)) + " of a step");
}

}  // namespace troupe::internal
