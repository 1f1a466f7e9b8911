// Shapes of coroutine code, and the objects that count what is made and destroyed in them: a compiler that
// destroys a temporary twice, never, or moves it by its bytes is found without a sanitizer.
#pragma once
#include <coroutine>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "actors/cell/task.h"

namespace troupe::testing {

/// What became of the items of one shape.
struct Book {
  std::set<const void*> living;
  int made = 0;   ///< by value; copies and moves, which compilers may leave out, do not count
  int ended = 0;  ///< destroyed, of those that hold a value: moving takes it along
  std::vector<std::string> wrong;

  void expect(bool holds, const std::string& what) {
    if (!holds) wrong.push_back(what);
  }
};
inline Book book;

/// A number with a destructor.
class Item {
 public:
  Item(int v) : value_(v) {  // implicit, as of a std::string from a literal
    ++book.made;
    begin();
  }
  Item(const Item& o) : value_(o.get()) {
    copied_ = true;
    begin();
  }
  Item(Item&& o) noexcept : value_(o.get()), copied_(o.copied_) {
    o.moved_ = true;
    begin();
  }
  Item& operator=(const Item& o) {
    take(o.get(), true);
    return *this;
  }
  Item& operator=(Item&& o) noexcept {
    take(o.get(), o.copied_);
    o.moved_ = true;
    return *this;
  }
  ~Item() {
    book.expect(self_ == this, "an object was moved by its bytes");
    book.expect(book.living.erase(this) == 1, "what does not live was destroyed");
    if (!moved_ && !copied_) ++book.ended;
  }

  int get() const {
    book.expect(book.living.count(this) == 1, "what does not live was read");
    book.expect(!moved_, "what was moved away was read");
    return value_;
  }
  Item operator+(const Item& o) const { return Item(get() + o.get()); }
  bool operator<(const Item& o) const { return get() < o.get(); }
  operator std::string() const { return "a text too long for a small string: " + std::to_string(get()); }
  inline Task<int> later() const;  ///< its value, after the caller was suspended

 private:
  void begin() { book.expect(book.living.insert(this).second, "something was made where another one lives"); }
  void take(int value, bool copied) {
    if (!moved_ && !copied_) ++book.ended;
    value_ = value, copied_ = copied, moved_ = false;
  }
  int value_;
  bool moved_ = false, copied_ = false;
  const Item* self_ = this;
};

/// Coroutines that wait for drive().
inline std::deque<std::coroutine_handle<>> waiting;

/// Suspends whoever awaits it, until drive() comes by.
struct Pause {
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> h) const { waiting.push_back(h); }
  void await_resume() const noexcept {}
};

template <class T>
struct Outcome {
  std::optional<T> value;
  std::exception_ptr error;
};

/// Owns a coroutine that runs a task.
class Drive {
 public:
  struct promise_type {
    Drive get_return_object() { return Drive(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  explicit Drive(std::coroutine_handle<promise_type> h) : handle_(h) {}
  Drive(Drive&&) = delete;
  ~Drive() { handle_.destroy(); }
  bool done() const { return handle_.done(); }

 private:
  std::coroutine_handle<promise_type> handle_;
};

template <class T>
Drive start(Task<T>& task, Outcome<T>& to) {
  try {
    T got = co_await task;
    to.value.emplace(std::move(got));
  } catch (...) {
    to.error = std::current_exception();
  }
}

/// What the task gives; resumes whatever pauses.
template <class T>
T run(Task<T> task) {
  Outcome<T> outcome;
  {
    const Drive drive = start(task, outcome);
    while (!waiting.empty()) {
      const auto next = waiting.front();
      waiting.pop_front();
      next.resume();
    }
    book.expect(drive.done(), "the task did not end");
  }
  if (outcome.error) std::rethrow_exception(outcome.error);
  return std::move(*outcome.value);
}

/// Runs a task for so many pauses and destroys it there.
template <class T>
void run_and_drop(Task<T> task, int pauses) {
  Outcome<T> outcome;
  const Drive drive = start(task, outcome);
  for (; pauses > 0; --pauses) {
    const auto next = waiting.front();
    waiting.pop_front();
    next.resume();
  }
  book.expect(!drive.done(), "the task ended too early");
  waiting.clear();
}

// ---- what shapes call; all of them pause

inline Task<int> taken(Item item) {
  co_await Pause{};
  co_return item.get();
}
inline Task<int> read(const Item& item) {
  co_await Pause{};
  co_return item.get();
}
inline Task<int> moved(Item&& item) {
  co_await Pause{};
  const Item mine = std::move(item);
  co_return mine.get();
}
inline Task<Item> made(int value) {
  co_await Pause{};
  co_return Item(value);
}
inline Task<int> number(int value) {
  co_await Pause{};
  co_return value;
}
inline Task<bool> truth(bool value) {
  co_await Pause{};
  co_return value;
}
inline Task<int> fails(Item item) {
  co_await Pause{};
  throw std::runtime_error("as it should " + std::to_string(item.get()));
}
inline Task<int> Item::later() const {
  co_await Pause{};
  co_return get();
}

/// One shape: `run` gives what it computed.
struct Shape {
  const char* name;
  int made;  ///< items made by value
  int result;
  int (*run)();
};
inline std::vector<Shape>& shapes() {
  static std::vector<Shape> all;
  return all;
}
struct Registered {
  explicit Registered(Shape s) { shapes().push_back(s); }
};

#define TROUPE_JOINED(a, b) a##b
#define TROUPE_NAMED(a, b) TROUPE_JOINED(a, b)
/// SHAPE("name", items made, result) { body of a coroutine that returns an int }
#define SHAPE(name, made, result)                                                                     \
  static ::troupe::Task<int> TROUPE_NAMED(shape_, __LINE__)();                                        \
  static const ::troupe::testing::Registered TROUPE_NAMED(registered_, __LINE__)(                     \
      {name, made, result, [] { return ::troupe::testing::run(TROUPE_NAMED(shape_, __LINE__)()); }}); \
  static ::troupe::Task<int> TROUPE_NAMED(shape_, __LINE__)()
/// SCENE("name", items made, result) { body of a function that returns an int }, for what runs tasks by hand
#define SCENE(name, made, result)                                                    \
  static int TROUPE_NAMED(shape_, __LINE__)();                                       \
  static const ::troupe::testing::Registered TROUPE_NAMED(                           \
      registered_, __LINE__)({name, made, result, &TROUPE_NAMED(shape_, __LINE__)}); \
  static int TROUPE_NAMED(shape_, __LINE__)()

/// false, and the compiler does not know.
inline bool no() {
  static volatile bool value = false;
  return value;
}
inline bool yes() { return !no(); }

}  // namespace troupe::testing
