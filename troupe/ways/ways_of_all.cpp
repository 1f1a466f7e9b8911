// What all workers know of their ways, in one table.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "collective/device_request.h"
#include "collective/lanes.h"
#include "collective/nccl/why_not.h"
#include "collective/schedule/choice.h"
#include "core/base/text_table.h"
#include "troupe/ways/ways_of_worker.h"

namespace troupe::internal {
namespace {

constexpr Duration kSettles = std::chrono::seconds(10);  // a connection that both ends want
constexpr size_t kLargest = size_t{1} << 32;             // of operations that are listed

struct Asked {
  actors::Member member;
  WorkerEnds ends;
};

std::vector<Asked> ends_of_all(actors::Worker& worker) {
  std::vector<Asked> all;
  std::vector<Future<std::vector<DeviceEnd>>> answers;
  for (auto& m : worker.members().all()) {
    answers.push_back(kDevices.ask(worker, m.id));
    all.push_back({std::move(m), {}});
  }
  for (size_t i = 0; i < all.size(); ++i) all[i].ends = {all[i].member.id, answers[i].get()};
  return all;
}

std::vector<TensorWay> ways_of_tensors(actors::Worker& worker, const std::vector<Asked>& all) {
  std::vector<WorkerEnds> ends;
  for (const Asked& a : all) ends.push_back(a.ends);
  std::vector<TensorWay> out;
  const auto end = std::chrono::steady_clock::now() + kSettles;
  for (;;) {
    out.clear();
    std::vector<Future<WaysFrom>> answers;
    for (const Asked& a : all) answers.push_back(kWaysFrom.ask(worker, a.member.id, ends));
    std::string open;
    for (size_t i = 0; i < all.size(); ++i) {
      const WaysFrom from = answers[i].get();
      out.insert(out.end(), from.ways.begin(), from.ways.end());
      if (!from.settled) open += (open.empty() ? "" : ", ") + all[i].member.name;
    }
    if (open.empty()) return out;
    if (std::chrono::steady_clock::now() > end)
      throw_error(ErrorKind::deadline, "[ways] connections from " + open +
                                           " have not been made within 10 s: TROUPE_LOG=info "
                                           "says what they do");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// ---- groups

std::string way_called(const collective::Setting& s) {
  const collective::Choice c = choose(s);
  const bool by_memory = collective::goes_by_memory(s.collective, s.ranks, s.bytes, s.on.hosts);
  return std::string(name(c.way)) + (c.lends     ? ", in shared memory"
                                     : by_memory ? ", without messages once memory is shared"
                                                 : "");
}

// Where the choice changes, found by halving between sizes that differ.
void add_ways(collective::Collective c, size_t ranks, const collective::HostCounts& on,
              std::vector<GroupWay>& out) {
  const auto setting = [&](size_t bytes) { return collective::Setting{c, ranks, bytes, on}; };
  const auto chosen = [&](size_t bytes) { return way_called(setting(bytes)); };
  size_t from = 0;
  const auto add = [&](size_t example) {  // of those sizes
    out.push_back({std::string(name(c)), "cpu", chosen(example), static_cast<int64_t>(from),
                   why_chosen(setting(example))});
  };
  for (size_t next = 1; next <= kLargest; next *= 2)
    for (std::string now; chosen(next) != (now = chosen(from));) {
      size_t low = std::max(next / 2, from), high = next;
      while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        (chosen(middle) == now ? low : high) = middle;
      }
      add(low);
      from = high;
    }
  add(from ? from : size_t{1} << 20);
}

// Workers of one host take its GPUs in turn.
void add_way_of_gpus(const std::vector<Asked>& all, std::vector<GroupWay>& out) {
  std::map<std::string, size_t> taken;
  std::vector<collective::Description> descriptions;
  std::vector<collective::GroupMember> members;
  GroupWay way;
  for (const Asked& a : all) {
    if (a.ends.devices.empty()) return;
    const auto& end = a.ends.devices[taken[a.member.host]++ % a.ends.devices.size()];
    const std::string label = a.member.name + " " + end.device;
    way.devices += (way.devices.empty() ? "" : ", ") + label;
    if (!end.why.empty() && way.why.empty()) way.why = end.why;
    descriptions.push_back({.has_tensor = true, .place = end.place});
    members.push_back({a.member.id, label});
  }
  if (way.why.empty()) way.why = collective::why_by_host(descriptions, members);
  way.way = way.why.empty() ? "NCCL " + collective::library_version_text(descriptions[0].place->version)
                            : "memory of the host, then as on the CPU";
  out.push_back(std::move(way));
}

std::vector<GroupWay> ways_of_groups(const std::vector<Asked>& all) {
  std::vector<GroupWay> out;
  if (all.size() < 2) return out;
  std::map<std::string, uint32_t> numbers;
  collective::HostOfRank hosts;
  for (const Asked& a : all)
    hosts.push_back(numbers.emplace(a.member.host, static_cast<uint32_t>(numbers.size())).first->second);
  const collective::HostCounts on = collective::host_counts(collective::counted(hosts), all.size());
  for (int i = 0; i < collective::kCollectiveCount; ++i)
    if (const auto c = static_cast<collective::Collective>(i); c != collective::Collective::barrier)
      add_ways(c, all.size(), on, out);
  add_way_of_gpus(all, out);
  return out;
}

}  // namespace

Ways ways_of_all(actors::Worker& driver) {
  const auto all = ends_of_all(driver);
  return {ways_of_tensors(driver, all), ways_of_groups(all)};
}

}  // namespace troupe::internal
