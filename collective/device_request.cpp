#include "collective/device_request.h"

#include <fmt/format.h>

#include <algorithm>
#include "collective/nccl/why_not.h"
#include "core/base/error.h"

namespace troupe::internal::collective {

Description description_of(const Request& request) {
  return {.collective = request.signature.problem.collective,
          .root = request.signature.problem.root,
          .has_tensor = true,
          .dtype = request.signature.dtype};
}

std::string why_by_host(const std::vector<Description>& all, const std::vector<GroupMember>& members) {
  const auto who = [&](size_t r) { return fmt::format("rank {} ({})", r, members[r].name); };
  size_t on_device = 0;
  while (on_device < all.size() && !all[on_device].place) ++on_device;
  for (size_t r = 0; r < all.size(); ++r)
    if (!all[r].place && on_device < all.size())
      throw_invalid(
          fmt::format("[{}] ranks brought tensors of different memory: {} of the CPU; {} of a device: "
                      "bring all of one kind",
                      name(all[r].collective), who(r), who(on_device)));
  std::map<uint64_t, size_t> gpus;
  for (size_t r = 0; r < all.size(); ++r) {
    const DevicePlace& p = *all[r].place;
    if (p.version == 0) return fmt::format("NCCL is not used on {}, and Cluster::ways() says why", who(r));
    const size_t other = p.version != all[0].place->version ? 0 : gpus.emplace(p.gpu, r).first->second;
    if (other != r) return why_apart({who(other), *all[other].place}, {who(r), p});
  }
  return "";
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
    default:
      throw_error(ErrorKind::unimplemented,
                  fmt::format("[{}] it does not go from device to device", name(p.collective)));
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
}

std::vector<WorkerDevice> devices_of(const std::vector<Description>& all,
                                     const std::vector<GroupMember>& members) {
  std::vector<WorkerDevice> devices;
  for (size_t r = 0; r < all.size(); ++r) devices.push_back({members[r].worker, all[r].place->device});
  return devices;
}

}  // namespace troupe::internal::collective
