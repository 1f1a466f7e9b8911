// Ends with 0 if the compiler destroys each temporary of a conditional in an awaited expression once, with 1
// if it does not. It counts, so that nothing crashes. tests/coroutines has all shapes.
#include <coroutine>
#include <exception>

namespace {

int made = 0, destroyed = 0;

struct Item {
  explicit Item(int) { ++made; }
  Item(const Item&) { ++made; }
  ~Item() { ++destroyed; }
};

struct Task {
  struct promise_type {
    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  explicit Task(std::coroutine_handle<promise_type> h) : handle(h) {}
  Task(const Task&) = delete;
  ~Task() { handle.destroy(); }
  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<>) const {
    handle.resume();
    return false;
  }
  void await_resume() const {}
  std::coroutine_handle<promise_type> handle;
};

Task taken(Item) { co_return; }
Task shape(bool b) { co_await taken(b ? Item(1) : Item(2)); }

}  // namespace

int main(int count, char**) {
  {
    const Task task = shape(count > 1);
    task.handle.resume();
  }
  return made == destroyed ? 0 : 1;
}
