// How a cluster comes together: workers announce themselves to worker 0 and get the list of members.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/cluster/admission.h"
#include "core/base/mutex.h"

namespace troupe::internal::actors {

/// Worker 0 says this to newcomers of an elastic job.
struct Invitation {
  std::string program;     ///< build of the program that all run; empty: not compared
  std::string job, terms;  ///< as Seat has them
};

/// Worker 0's part. Serves until all `world` workers have joined; later calls are refused, or, in an elastic
/// cluster, are newcomers.
class Coordinator {
 public:
  /// `self` is worker 0. Installs its services on the worker before anybody can connect.
  Coordinator(Worker& worker, Member self, uint32_t world, bool elastic = false, Invitation invitation = {});
  /// Waits until everybody is there and knows all others; `deadline` names the missing ones, `disconnected`
  /// one that joined and left, `invalid` one that others could not reach; or the error of `stop`, once it has
  /// one. Those that wait to be let in are told the same, and those that come while this lives.
  void wait(Duration timeout, const Future<void>& stop = {});
  /// Once wait() has failed: until all others have been told why, for at most `limit`.
  void tell_all(Duration limit) { (void)all_heard_.future().wait_for(limit); }
  /// Before the end: lets nobody in any more. Ready when nobody is being let in.
  Future<void> close() { return admission_.close(); }
  /// Tells every other worker to end with exit code `code`, waits at most `grace` for their answers. Those
  /// that did not answer, and why.
  std::vector<std::pair<std::string, Error>> shut_down(int code, Duration grace);

 private:
  void on_join(const Ref<Invocation>& call, Member member, uint32_t world, const std::string& program);
  void give_up(const Error& reason);
  void heard(WorkerId id);
  Worker& worker_;
  uint32_t world_;
  const bool elastic_;
  const Invitation invitation_;
  std::atomic<WorkerId> next_seat_;
  Admission admission_;
  Mutex mutex_;
  std::vector<Ref<Invocation>> waiting_ TROUPE_GUARDED_BY(mutex_);
  std::vector<bool> joined_ TROUPE_GUARDED_BY(mutex_);
  // Why workers were refused that may come again.
  std::map<WorkerId, std::string> refused_ TROUPE_GUARDED_BY(mutex_);
  std::optional<Error> failed_ TROUPE_GUARDED_BY(mutex_);  // why the meeting has
  std::vector<bool> heard_ TROUPE_GUARDED_BY(mutex_);      // who knows that, or is gone
  Promise<void> complete_, all_heard_;
};

/// The part of the others.
class Joiner {
 public:
  /// `program`: as Invitation has it.
  explicit Joiner(Worker& worker, std::string program = {});
  /// Connects to worker 0 at `address`, which may take `timeout`, and waits until the cluster of `world`
  /// workers is complete. How long that may take, worker 0 decides: its time begins before ours ends.
  /// `disconnected`: nobody there; `invalid`: refused (token, version, number taken, another size, an address
  /// that others cannot reach); `deadline`, naming those that are missing. `connected` is called once there
  /// is a connection, and may add addresses that this worker listens at.
  void join(const std::string& address, Member self, uint32_t world, Duration timeout,
            const std::function<void(Member& self)>& connected = {});
  /// The part of join() once there is a connection. Ready when this worker knows all others.
  Future<void> announce(const Member& self, uint32_t world, Duration timeout);
  /// Waits for the end: the exit code that worker 0 gave, or `disconnected` if worker 0 was lost.
  Future<int> ended() const { return ended_.future(); }
  /// Says goodbye, so that nobody takes it for a loss, and makes ended() ready with `code`; `invalid` unless
  /// the cluster is elastic.
  Future<void> leave(int code);
  /// Makes ended() ready with `code`.
  void end(int code) { ended_.set(code); }

 private:
  Worker& worker_;
  const std::string program_;
  Promise<void> complete_;
  Promise<int> ended_;
  std::atomic<int> leaving_{0};  // while not 0, answers say how it ends: worker 0 closes right behind them
};

/// Connects to worker 0, which may come within `timeout`; `disconnected` says who has not reached it.
void reach_driver(Worker& worker, const std::string& address, const std::string& who, Duration timeout);

/// Equal for processes that can reach each other's Unix sockets: machine and network namespace.
std::string host_identity();
/// The machine of such a host: others of it, as network namespaces are, share its processors.
std::string machine_of(const std::string& host);

}  // namespace troupe::internal::actors
