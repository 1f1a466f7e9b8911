// The simulated machine behind the C functions: devices with memory, streams of tasks, events, one lock.
#pragma once
#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <typeinfo>
#include <vector>

#include "tests/support/sim_cuda/audit.h"
#include "tests/support/sim_cuda/order.h"
#include "tests/support/sim_cuda/sim.h"

namespace sim_cuda {

constexpr int kMostDevices = 16;
constexpr unsigned char kPoison = 0xff;  // NaN, -1, an index that is none
constexpr unsigned char kGuard = 0xa5;   // behind every allocation

/// What a task did wrong; thrown by tasks, kept by the machine.
struct Fault {
  std::string text;
};

/// Memory of a device, mapped thrice: what programs hold (and nobody may touch), what kernels read, what they
/// write.
class Memory {
 public:
  explicit Memory(int device);

  void* take(size_t bytes, cudaStream_t stream);  // null: out of memory
  bool give(void* data, cudaStream_t stream);     // false: no allocation
  /// When the stream comes to them. A block may be taken again before it has come to the end of its last use.
  void begin(void* data, size_t bytes);
  void end(void* data);

  bool holds(const void* p) const;
  bool has(const void* p) const;  // in a living allocation
  /// Throws Fault if the bytes are not in a living allocation (`what` begins its text), or if another
  /// stream's task touches them and there is no order between the two.
  void* seen(const void* p, size_t bytes, bool written, const std::string& what);
  /// The same for what a kernel gets: of the bytes only those that are in the allocation count.
  void* given(const void* p, const Extent& bytes, bool written, const std::string& what);
  void trim();
  /// Where the bytes of an argument lie that are in its allocation, as the program sees addresses.
  std::pair<uintptr_t, uintptr_t> span_of(const void* p, const Extent& bytes) const;

  size_t used = 0, reserved = 0, used_high = 0, reserved_high = 0, limit = 0;

 private:
  struct Block {
    size_t bytes = 0, slot = 0;
    size_t wanted = 0;     // bytes that were last asked for; `bytes` follows when a stream comes to it
    bool asked = true;     // for, by the program, and not given back
    bool living = false;   // as the streams see it
    bool guarded = false;  // has what shows that something wrote behind it
    size_t ends = 0;       // that were asked for and that no stream has come to
    History history = {};
  };
  struct Free {
    size_t offset;
    cudaStream_t stream;
    bool trimmed = false;
  };
  void touch(size_t offset, Block& block, size_t begin, size_t end, bool written);
  std::pair<const size_t, Block>& block_at(const void* p, size_t bytes, const std::string& what);
  size_t offset_of(const void* p) const {
    return static_cast<size_t>(static_cast<const std::byte*>(p) - forbidden_);
  }

  std::byte *forbidden_, *readable_, *writable_;
  int file_, device_;
  std::map<size_t, Block> blocks_;            // by offset; freed ones stay until they are reused
  std::map<size_t, std::vector<Free>> free_;  // by size of slot
  size_t next_ = 0;
};

/// Where arguments of a launch lie.
struct Spans {
  std::vector<std::pair<uintptr_t, uintptr_t>> read, written;
  uint64_t read_bytes() const;
  uint64_t written_bytes() const;
};

struct EventState {
  uint64_t asked = 0, reached = 0;                // numbers of records
  std::shared_ptr<Clock> last = nullptr;          // what was before the last record, once that is reached
  std::chrono::steady_clock::time_point at = {};  // when it was reached
};

/// What a task does that needs tasks of other streams at the same time: it keeps the head of its stream until
/// they have met. (The kernels of NCCL.)
class Meeting {
 public:
  virtual ~Meeting() = default;
  virtual bool can_go() const = 0;  // start, go on, or end
  virtual bool go() = 0;            // true: it has ended
  virtual bool keeps_device() const = 0;
  virtual std::string waits_for() const = 0;
};

struct Task {
  std::string name;
  std::function<void()> run;
  std::shared_ptr<EventState> waits = nullptr;  // with `version`
  uint64_t version = 0;
  bool always = false;                      // also after a fault: it keeps the books
  std::shared_ptr<Clock> marks = nullptr;   // gets what is before it
  Moment after = nullptr, asked = nullptr;  // what it is behind: an event's record, what the host waited for
  std::shared_ptr<Meeting> meeting = nullptr;
  bool has_begun = false;
};

struct Stream {
  int device = 0;
  std::deque<Task> tasks;
  uint64_t priority = 0;
  size_t number = 0;
  Clock clock;
};

class Machine {
 public:
  static Machine& get();

  std::mutex mutex;
  std::vector<std::unique_ptr<Memory>> memories;
  std::map<cudaStream_t, std::unique_ptr<Stream>> streams;
  std::map<cudaEvent_t, std::shared_ptr<EventState>> events;
  std::map<const void*, size_t> pinned;
  size_t pinned_bytes = 0, pinned_limit = SIZE_MAX;
  uintptr_t next_handle = 0x100;
  cudaError_t no_devices = cudaSuccess;  // why there are none
  int driver = CUDART_VERSION;           // the CUDA that it is for; 0: there is none
  Counters counters;
  uint64_t failing_allocation = 0;
  cudaError_t sticky = cudaSuccess;
  std::string fault;
  bool eager = true;
  std::mt19937_64 random;
  size_t streams_made = 0;
  std::optional<std::vector<Asked>> audited;  // what was asked for, while an audit goes on
  bool dry = false;                           // nothing is computed
  const Stream* running = nullptr;            // whose task `running_task` is
  std::string running_task;
  /// For how long a thread that waits gives the others time to ask for what it needs; zero: there are none.
  std::chrono::milliseconds patience{10'000};
  std::condition_variable_any changed;
  std::function<void()> before_step;  // what others do between two tasks; may be empty

  Stream* find(cudaStream_t s);
  Memory* memory_of(const void* p);
  bool is_pinned(const void* p) const;
  void add(Stream& stream, Task task);
  /// What is enqueued from now on is behind all of it.
  void host_waited_for(const Clock& clock);
  /// Keeps the first fault; every call then fails.
  void note(cudaError_t error, std::string text);
  /// Runs tasks until done(); false, and a fault, if nothing can go on. `for_others`: other threads may end
  /// it.
  bool run_until(const std::function<bool()>& done, const char* who, bool for_others = false);
  void run_all(const char* who);
  bool run_some() { return step(); }  // a query makes progress
  /// Whether a task that has met others, or waits for them, keeps the device: what synchronizes it waits.
  bool is_kept(int device) const;
  /// What holds up streams that have work; "" if something can go on, or nothing is left.
  std::string stuck() const;
  void set_seed(uint64_t seed);
  void keep(Asked asked);
  void keep_kernel(const char* name, const std::type_info& type, const Spans& spans, uint64_t blocks,
                   uint64_t threads, size_t shared_bytes);

 private:
  Machine();
  Moment host_ = std::make_shared<Clock>();
  bool step();  // one task of a stream that is not blocked; false if there is none
  bool blocked(const Stream& s) const;
  bool meets() const;  // whether a stream is held up by others' tasks, which may be asked for yet
  void run(Stream& s);
  std::string blocked_text() const;
};

class Kernel;
/// Runs a grid; throws Fault. `random`: the order of warps; null: as they are numbered.
void run_grid(dim3 grid, dim3 block, size_t shared_bytes, Kernel& kernel, std::mt19937_64* random);

}  // namespace sim_cuda
