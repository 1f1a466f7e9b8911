#include "collective/device_request.h"

#include <fmt/format.h>

#include <algorithm>
#include "collective/matching/operation_text.h"
#include "collective/nccl/why_not.h"
#include "core/base/error.h"

namespace troupe::internal::collective {

Description description_of(const Request& request) {
  return {.collective = request.signature.problem.collective,
          .root = request.signature.problem.root,
          .has_tensor = true,
          .dtype = request.signature.dtype};
}

void check_memory(const std::vector<Description>& all, const std::vector<GroupMember>& members) {
  const auto on_device = std::ranges::find_if(all, [](const Description& d) { return d.place.has_value(); });
  const auto on_cpu = std::ranges::find_if(all, [](const Description& d) { return !d.place; });
  if (on_device == all.end() || on_cpu == all.end()) return;
  const bool scatters = on_cpu->collective == Collective::scatter;
  throw_invalid(fmt::format(
      "[{}] ranks brought tensors of different memory: {} of the CPU{}; {} of a device: "
      "bring all of one kind{}",
      name(on_cpu->collective), rank_text(members, static_cast<size_t>(on_cpu - all.begin())),
      on_cpu->has_tensor ? "" : " or none", rank_text(members, static_cast<size_t>(on_device - all.begin())),
      scatters ? ", and to get rows on a device any tensor of it" : ""));
}

std::string why_by_host(const std::vector<Description>& all, const std::vector<GroupMember>& members) {
  check_memory(all, members);
  std::map<uint64_t, size_t> gpus;
  for (size_t r = 0; r < all.size(); ++r) {
    const DevicePlace& p = *all[r].place;
    if (p.version == 0)
      return fmt::format("NCCL is not used on {}, and Cluster::ways() says why", rank_text(members, r));
    const size_t other = p.version != all[0].place->version ? 0 : gpus.emplace(p.gpu, r).first->second;
    if (other != r)
      return why_apart({rank_text(members, other), *all[other].place}, {rank_text(members, r), p});
  }
  return "";
}

namespace {

// Of those that each send to each: the sends of a group have their receives in the same group of the others,
// since all go the same distances round the ranks.
void exchange_with_all(Request& request, size_t rank) {
  const Problem& p = request.signature.problem;
  for (size_t d = 1; d < p.ranks; ++d) {
    const size_t to = (rank + d) % p.ranks, from = (rank + p.ranks - d) % p.ranks;
    const Range out = p.block(rank * p.ranks + to), in = p.block(from * p.ranks + rank);
    const auto group = static_cast<uint32_t>((d - 1) / (kMostSteps / 2));
    if (out.size) request.work.steps.push_back({DeviceStep::send, request.elements.read(out), {}, to, group});
    if (in.size)
      request.work.steps.push_back({DeviceStep::receive, {}, request.elements.read(in), from, group});
  }
}

// Of scatter and gather, whose root sends or receives each part by itself.
void exchange_with_root(Request& request, size_t rank, const Tensor& own) {
  const Problem& p = request.signature.problem;
  const bool is_root = rank == p.root, scatters = p.collective == Collective::scatter;
  const auto add = [&](DeviceStep::Kind kind, const Tensor& t, size_t peer) {
    const bool sends = kind == DeviceStep::send;
    request.work.steps.push_back({kind, sends ? t : Tensor(), sends ? Tensor() : t, peer});
  };
  const auto block = [&](size_t k) { return request.elements.read(p.block(k)); };
  if (scatters && !is_root && p.counts[rank]) add(DeviceStep::receive, block(rank), p.root);
  if (!scatters && p.counts[rank]) {
    add(DeviceStep::send, own, p.root);
    if (is_root) add(DeviceStep::receive, block(rank), rank);
  }
  for (size_t k = 0; is_root && k < p.ranks; ++k)  // scattered rows of its own are where they were
    if (k != rank && p.counts[k]) add(scatters ? DeviceStep::send : DeviceStep::receive, block(k), k);
}

}  // namespace

bool needs_devices(const Problem& p) {
  if (p.collective != Collective::all_to_all) return p.elements() != 0;
  for (size_t i = 0; i < p.counts.size(); ++i)
    if (p.counts[i] && i / p.ranks != i % p.ranks) return true;
  return false;
}

void send_by_devices(Request& request, size_t rank, const Tensor& own) {
  Signature& s = request.signature;
  const Problem& p = s.problem;
  const bool is_root = rank == p.root;
  std::vector<DeviceStep>& steps = request.work.steps;
  s.on_devices = true;
  request.work.reduction = s.reduction;
  const bool even = std::ranges::all_of(p.counts, [&](size_t n) { return n == p.counts[0]; });
  const Tensor none;
  if (!p.elements()) return;
  switch (p.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::broadcast:
      request.elements.each([&](Range range, const Tensor& t) {
        if (!range.size) return;
        if (p.collective == Collective::all_reduce)
          steps.push_back({DeviceStep::all_reduce, t, t, 0});
        else if (p.collective == Collective::reduce)
          steps.push_back({DeviceStep::reduce, t, is_root ? t : none, p.root});
        else
          steps.push_back({DeviceStep::broadcast, is_root ? t : none, is_root ? none : t, p.root});
      });
      return;
    case Collective::reduce_scatter:
      if (even) {
        steps.push_back({DeviceStep::reduce_scatter, request.elements.read({0, p.elements()}),
                         request.elements.read(p.block(rank)), 0});
        return;
      }
      for (size_t k = 0; k < p.ranks; ++k)
        if (const Tensor block = request.elements.read(p.block(k)); p.counts[k])
          steps.push_back({DeviceStep::reduce, block, k == rank ? block : none, k});
      return;
    case Collective::all_gather:
      if (even) {
        steps.push_back({DeviceStep::all_gather, own, request.elements.read({0, p.elements()}), 0});
        return;
      }
      for (size_t k = 0; k < p.ranks; ++k)
        if (p.counts[k])
          steps.push_back(
              {DeviceStep::broadcast, k == rank ? own : none, request.elements.read(p.block(k)), k});
      return;
    case Collective::scatter:
    case Collective::gather:
      return exchange_with_root(request, rank, own);
    case Collective::all_to_all:
      return exchange_with_all(request, rank);
    case Collective::barrier:
      return;
  }
}

void give_back_to(Device device, Request& request) {
  request.result = [inner = std::move(request.result), device](const Elements& e) {
    Tensors all = inner(e);
    for (Tensor& t : all)
      if (t.defined()) t = t.data_on(device);
    return all;
  };
}

void send_by_host(Request& request) {
  Elements there(request.elements.dtype());
  request.elements.each([&](Range range, const Tensor& t) { there.add(range, t.data_on(cpu)); });
  request.elements = std::move(there);
  give_back_to(request.device, request);
  request.device = cpu;
}

void bring_to_host(Described& own) {
  for (Tensor& t : own.brings) t = t.data_on(cpu);
  own.where = cpu;
}

std::vector<WorkerDevice> devices_of(const std::vector<Description>& all,
                                     const std::vector<GroupMember>& members) {
  std::vector<WorkerDevice> devices;
  for (size_t r = 0; r < all.size(); ++r) devices.push_back({members[r].worker, all[r].place->device});
  return devices;
}

}  // namespace troupe::internal::collective
