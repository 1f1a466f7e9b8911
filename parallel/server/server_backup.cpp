#include "parallel/server/server_backup.h"

#include "actors/worker/worker.h"
#include "core/base/mutex.h"

namespace troupe::parallel {
namespace {

// The servers, by their paths. Those of a program that begins again take the places of the ones before.
struct BackedServers final : internal::actors::Extension {
  internal::Mutex mutex;
  std::map<std::string, std::pair<WorkerId, WorkerId>> all TROUPE_GUARDED_BY(mutex);
};

}  // namespace

void install_backed_servers(internal::actors::Worker& worker) {
  worker.add_extension(std::make_unique<BackedServers>());
}

void note_backup(internal::actors::Worker& here, const std::string& path, WorkerId first, WorkerId backup) {
  auto& servers = *here.extension<BackedServers>();
  const internal::Lock lock(servers.mutex);
  servers.all[path] = {first, backup};
}

std::vector<std::pair<std::string, std::string>> moved_servers(internal::actors::Worker& here) {
  auto& servers = *here.extension<BackedServers>();
  std::vector<std::pair<std::string, std::string>> moved;
  const internal::Lock lock(servers.mutex);
  for (const auto& [path, both] : servers.all)
    if (here.members().absence(both.first) && !here.members().absence(both.second))
      moved.emplace_back(path, here.members().name_of(both.second));
  return moved;
}

}  // namespace troupe::parallel
