#include "troupe/ways/ways_of_worker.h"

#include <fmt/format.h>

#include <algorithm>

#include "collective/engine.h"
#include "collective/nccl/why_not.h"
#include "core/memory/backend.h"
#include "troupe/ways/tensor_way.h"

namespace troupe::internal {

namespace {

template <class Service, class Answer>
void answer_with(const Service& service, const Ref<actors::Invocation>& call, const Answer& answer) {
  try {
    service.answer(*call, answer());
  } catch (...) {
    call->fail(current_error());
  }
}

// Each side may have opened one.
std::optional<net::LinkState> link_to(WorkerId peer, const std::vector<net::LinkState>& links) {
  std::optional<net::LinkState> found;
  for (const net::LinkState& l : links) {
    if (l.peer != peer) continue;
    const bool settled = l.settled && (!found || found->settled);
    if (!found || l.lent_from > found->lent_from) found = l;
    found->settled = settled;
  }
  return found;
}

}  // namespace

void WaysOfWorker::install(actors::Worker& worker) {
  WaysOfWorker* const e = &worker.add_extension(std::make_unique<WaysOfWorker>(worker));
  kDevices.serve_later(worker, [e](const Ref<actors::Invocation>& call) {
    e->jobs_.post([e, call] { answer_with(kDevices, call, [e] { return e->devices(); }); });
  });
  kWaysFrom.serve_later(worker, [e](const Ref<actors::Invocation>& call, std::vector<WorkerEnds> all) {
    e->jobs_.post(
        [e, call, all = std::move(all)] { answer_with(kWaysFrom, call, [&] { return e->ways_to(all); }); });
  });
}

std::vector<DeviceEnd> WaysOfWorker::devices() const {
  std::vector<DeviceEnd> all;
  for (const Device d : all_devices()) {
    if (d.is_cpu()) continue;
    DeviceEnd& end = all.emplace_back(DeviceEnd{d.str(), {}, ""});
    end.place = collective::GroupEngine::of(worker_).devices().look_at(d, end.why);
  }
  return all;
}

WaysFrom WaysOfWorker::ways_to(const std::vector<WorkerEnds>& all) const {
  WaysFrom out;
  const auto links = worker_.transport().links();
  for (const WorkerEnds& to : all) {
    if (to.worker == worker_.id()) continue;
    const auto link = link_to(to.worker, links);
    if (!link) worker_.watch(to.worker);
    out.settled = out.settled && link && link->settled;
    if (link)
      for (const Device d : all_devices()) out.ways.push_back(way(*link, to, d));
  }
  return out;
}

TensorWay WaysOfWorker::way(const net::LinkState& link, const WorkerEnds& to, Device here) const {
  const auto name = [&](TensorWay w, const std::string& there) {
    w.from = worker_.name();
    w.from_device = here.str();
    w.to = worker_.members().name_of(to.worker);
    w.to_device = there;
    return w;
  };
  const auto member = worker_.members().find(to.worker);
  const bool same_host = member && member->host == worker_.host();
  if (here.is_cpu()) return name(way_of({.link = link, .same_host = same_host}), here.str());
  Device there = here;
  try {
    there = worker_.placing(to.worker).there(here);
  } catch (const Error& e) {
    return name({.way = "none", .why = e.message()}, "");
  }
  const auto end = std::ranges::find(to.devices, there.str(), &DeviceEnd::device);
  if (end == to.devices.end())
    return name({.way = "none",
                 .why = fmt::format("{} has no {}: ClusterOptions::device_maps says which device stands for "
                                    "{}",
                                    worker_.members().name_of(to.worker), there.str(), here.str())},
                "");
  WayFacts facts{.link = link, .same_host = same_host, .here = here, .there = there};
  if (link.carrier != net::Carrier::memory || collective::transfers_in_process()) {
    facts.why_not = end->why;
    if (facts.why_not.empty())
      facts.why_not =
          collective::GroupEngine::of(worker_).transfers().why_not(to.worker, here, there, end->place);
    if (facts.why_not.empty()) {
      facts.library = "NCCL " + collective::library_version_text(end->place.version);
      facts.library_from = collective::transfers_from();
    }
  }
  return name(way_of(facts), there.str());
}

}  // namespace troupe::internal
