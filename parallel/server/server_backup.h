// A second server that does what the first one does, and goes on when that is lost.
//
//   trainer --push--> first --change--> backup      the first does it, the backup too, in the same order;
//   trainer <-answer- first <---done--- backup      nobody is told of what the backup has not done
//
// A first one that is lost has told nobody of what is not at the backup. Trainers make their open calls again
// there, by number, so that what it had done counts once. A first one that loses its backup goes on alone; a
// trainer that it has answered since says so to the backup, which then refuses to go on for it. (Who only
// reads cannot know.)
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/worker/common_method.h"
#include "parallel/server/consistency/consistency.h"
#include "parallel/server/server_options.h"
#include "rref/any_ref.h"

namespace troupe::parallel {

/// A server and its backup, as each knows the other.
struct ServerPair {
  AnyRef backup = {};          ///< of this one; empty: none
  uint64_t first = kNoWorker;  ///< the worker of the one whose backup this is
};

/// What a server has done and its backup is to do.
struct ServerChange {
  enum Kind : int64_t { join, leave, lose, read, push, policy, options };
  int64_t kind = join;
  TrainerId who = {};
  uint64_t worker = kNoWorker;  ///< join: of the trainer
  std::string text = {};        ///< lose: the trainer's worker
  VersionStamp stamp = {};      ///< push
  Tensors what = {};
  double weight = 0;
  ServerPolicy to = {};                       ///< policy
  std::map<std::string, Value> changed = {};  ///< options
};

/// Server to its backup: behind each change. Answered when the backup has made it.
inline constexpr internal::actors::CommonMethod<void(ServerChange change)> kFollow{"server.follow"};

/// Part of every worker's set-up.
void install_server_backups(internal::actors::Worker& worker);

void install_backed_servers(internal::actors::Worker& worker);
/// A server that was made here has that backup, which has its path (ActorCell::path()).
void note_backup(internal::actors::Worker& here, const std::string& path, WorkerId first, WorkerId backup);
/// Paths of servers that were made here and are lost, and the workers of the backups that go on for them.
std::vector<std::pair<std::string, std::string>> moved_servers(internal::actors::Worker& here);

}  // namespace troupe::parallel
