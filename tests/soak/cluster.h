// A cluster of real workers on one thread, under a virtual clock, in which everything that is random comes
// from one seed; and the book in which everything is written that must hold.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "actors/runtime/serial_runtime.h"
#include "actors/worker/worker.h"
#include "core/base/generator.h"
#include "net/sim/network.h"
#include "net/wire/wire.h"
#include "rref/ref_table.h"
#include "tests/soak/plan.h"
#include "troupe/cluster/cluster.h"
#include "troupe/cluster/worker_stack.h"

namespace troupe::soak {

/// One worker process. Once it has crashed, nothing of it runs any more.
struct Process {
  WorkerId id = 0;
  std::string name;
  bool alive = true;
  std::shared_ptr<internal::actors::SerialRuntime> runtime;
  std::unique_ptr<WorkerStack> stack;
  internal::actors::Worker* worker = nullptr;
  std::shared_ptr<internal::rref::RefTable> references;
  int programs = 0;  ///< that run on it

  template <class T, class... A>
  RRef<T> spawn(WorkerId on, A... args) {
    return Here(references).spawn<T>(on, std::move(args)...);
  }
};

/// What may come of a call besides its value.
enum Excuse : unsigned {
  kNone = 0,
  kDeadline = 1,   ///< its deadline was short
  kThrows = 2,     ///< the method throws
  kCancelled = 4,  ///< its caller gave it up
  kRefused = 8,    ///< it asks for something that is not there
};

class Cluster final : public internal::net::Observer {
 public:
  using Watch = std::function<void(Moment, Process& from, Process& to, const internal::net::Packet*)>;

  Cluster(const Plan& plan, internal::actors::TypeRegistry hosting, bool tracing = false);
  ~Cluster() override;
  /// The one that runs on this thread, or null.
  static Cluster* current();

  // ---- what happens
  /// A new worker, which all that live know.
  Process& start();
  void crash(Process& process, internal::net::InFlight in_flight = internal::net::InFlight::lost);
  /// The next event, and the deadlines that have passed by then. False: nothing is left to happen.
  bool step();
  void settle() {
    while (step()) {
    }
  }
  Future<void> sleep(Duration time);
  /// Nothing breaks any more.
  void stop_faults() { plan_.faults.clear(); }
  /// Ends all workers: what waits is cancelled.
  void end();
  bool over() const { return over_; }
  TimePoint now() const { return network_.clock().now(); }
  internal::net::Network& network() { return network_; }
  Generator& random() { return random_; }

  Process& process(size_t i) { return *processes_[i]; }
  size_t size() const { return processes_.size(); }
  /// Of the frame that is active.
  Process& here();
  /// At the moments of all messages.
  void watch(Watch watch) { watch_ = std::move(watch); }

  // ---- the book
  /// Opens an entry for a call; its number travels as the call's first argument.
  int64_t issued(const char* method, TimePoint deadline);
  void ran(int64_t token);
  void answered(int64_t token, bool ok);
  /// Judges an error: is there a cause for it, and is it the right one?
  void judge(const std::string& where, const Error& error, unsigned excuses);
  void wrong(const std::string& what);
  const std::optional<std::string>& failure() const { return failure_; }
  /// Calls without an answer, counters that are not zero, and jobs that wait, on those that live.
  void check_nothing_left();
  /// The two know each other, and have not lost each other.
  bool linked(const Process& a, const Process& b) const;
  /// What each number of an object is.
  std::map<ObjectId, int64_t> numbers;
  /// Names that may be there: from before they are given until they were dropped for certain.
  std::set<std::string> names;

  uint64_t hash() const { return hash_; }
  uint64_t events() const { return events_; }
  uint64_t calls() const { return calls_.size(); }
  uint64_t faults() const { return faults_; }
  uint64_t errors() const { return errors_; }
  const std::deque<std::string>& trace() const { return trace_; }

 private:
  struct Call {
    const char* method;
    Process* from;
    TimePoint deadline;
    int runs = 0, answers = 0;
  };
  void sending(const std::string& from, const std::string& to, const internal::net::Message& m) override;
  void arriving(const std::string& from, const std::string& to, const internal::net::Message& m) override;
  void handled(const std::string& from, const std::string& to) override;
  void happen(Moment moment, Process& from, Process& to, const internal::net::Packet* packet);
  void apply(const Fault& fault, Process& from, Process& to);
  void check_wire(const Process& from, const Process& to, const internal::net::Packet& packet);
  void lost(Process& at, WorkerId id, const Error& why);
  bool broken(const Process& a, const Process& b) const;
  Process& named(const std::string& name) { return *processes_[std::stoul(name.substr(1))]; }
  TimePoint tick();
  void mix(uint64_t bits) { hash_ = splitmix64(hash_ ^ bits); }
  void note(const std::string& line);

  Plan plan_;
  const internal::actors::TypeRegistry hosting_;
  Cluster* const outer_;
  Generator random_;
  internal::net::Network network_;
  std::vector<std::unique_ptr<Process>> processes_;
  TimePoint wake_ = TimePoint::max();
  bool over_ = false, tracing_;
  std::map<uint64_t, Promise<void>> sleeping_;
  uint64_t last_sleep_ = 0;
  Watch watch_;
  uint64_t moments_[3] = {0, 0, 0};
  internal::net::Packet arrived_;

  std::vector<Call> calls_;
  std::unordered_set<uint64_t> on_wire_;             // calls that came and have not been answered
  std::set<std::pair<WorkerId, WorkerId>> touched_;  // pairs that a fault has met; first < second
  std::set<std::pair<WorkerId, WorkerId>> lost_;     // who has lost whom
  std::optional<std::string> failure_;
  uint64_t hash_ = 0, events_ = 0, faults_ = 0, errors_ = 0;
  std::deque<std::string> trace_;
};

/// "call 3 of ref.spawn", "reply to 3: deadline".
std::string describe(const internal::net::Packet& packet);

}  // namespace troupe::soak
