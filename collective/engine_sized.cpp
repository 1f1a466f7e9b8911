// How GroupEngine begins an operation of which the ranks have to tell each other something first: their
// sizes, or where their tensors are. Tensors of devices. Which operations go by memory.
#include "collective/device_request.h"
#include "collective/engine.h"
#include "core/base/log.h"
#include "core/graph/node.h"

namespace troupe::internal::collective {

namespace {

// Of the operation itself; the tag that a user gave it is that of the sizes. It has the same use of both: who
// brings something else may tell no sizes, and does not count it.
std::string tag_of_sizes(const std::string& tag) { return tag + "\nsizes"; }

DeviceOperation operation_of(const OperationId& id, const std::vector<WorkerDevice>& devices,
                             std::string brings) {
  return {.id = {id.group, splitmix64(net::method_id(id.tag) ^ splitmix64(id.use))},
          .leader = devices.front(),
          .members = devices,
          .brings = std::move(brings)};
}

// Of threads of the pool that call what waits for results, as the threads of connections do.
CallFrame callback_frame() {
  CallFrame f;
  f.callback = true;
  return f;
}

}  // namespace

void GroupEngine::begin(const GroupCallPtr& call, Described own) {
  if (!own.device().is_cpu()) return begin_on_devices(std::make_shared<Sized>(Sized{call, std::move(own)}));
  if (auto all = known_to_all(own, call->at))
    return begin(call, request_of(own, std::move(*all), call->at, call->members));
  exchange(std::make_shared<Sized>(Sized{call, std::move(own)}));
}

bool GroupEngine::call_by_memory(const Group& group, const SmallCall& call, const CollectiveOptions& options,
                                 LaneTurn& turn) {
  if (!lanes_->made()) return false;
  const bool may_record =
      !call.xs.empty() && recorder_ && frame().context && grad_enabled() && options.gradients;
  const auto needs_gradients = [](const Tensor& x) { return x.defined() && x.requires_grad(); };
  return !may_record && std::ranges::none_of(call.xs, needs_gradients) &&
         lanes_->call(group, call, options, turn);
}

// A lane may be made for what is small, of members that may share memory.
bool GroupEngine::may_go_by_memory(const Run& run, const OperationTag& tag, const SizedPtr& sized) {
  const GroupCall& call = *run.call;
  const Request& r = run.request;
  const bool gathers = call.collective == Collective::all_gather;
  if (gathers != (sized != nullptr)) return false;  // not those whose sizes are known to all
  size_t bytes = r.bytes();
  if (gathers) {
    const Description& d = sized->own.description;
    if (!sized->device().is_cpu()) return false;
    bytes = static_cast<size_t>(d.rows[0] * d.row.numel()) * item_size(d.dtype) * call.at.ranks;
  }
  return goes_by_memory(call.collective, call.at.ranks, bytes, call.on.hosts) && !call.way && !call.context &&
         !tag.single_use && !r.signature.on_devices && call.recorded.expired();
}

// The operation is among the runs.
void GroupEngine::decided(const OperationId& id, LaneOutcome::Decided d) {
  Out out;
  if (d.way == LaneWay::messages) {
    operations_.release(id, out);
  } else if (operations_.done_without(id, out)) {
    if (const auto run = find(id)) run->result = std::move(d.result);
  }
  perform(std::move(out));
}

void GroupEngine::give_up(const Group& group, const std::string& tag, const Error& why) {
  Out out;
  const OperationId id{number_of(group), group.rank(), tag, OperationId::kSingleUse};
  operations_.give_up(id, members_of(group), why, out);
  perform(std::move(out));
  Out second;  // which is under way if the ranks have told each other their sizes
  const OperationId sized{id.group, id.rank, tag_of_sizes(tag), id.use};
  operations_.fail(sized, why, second);
  perform(std::move(second));
}

void GroupEngine::fail_tags(const Group& group, const std::string& begin, const Error& why) {
  lanes_->give_up(number_of(group), begin);
  Out out;
  operations_.fail_tags(number_of(group), begin, why, out);
  perform(std::move(out));
}

void GroupEngine::exchange(const SizedPtr& sized) {
  const GroupCallPtr& call = sized->call;
  const auto run = std::make_shared<Run>();
  run->call = call;
  run->request = exchange_of(sized->own.description, call->at);
  run->done = [this, sized](Result<Tensors> sizes) {
    const GroupCall& c = *sized->call;
    const Queue queue{c.group, c.at.rank, c.tag};
    {
      const Lock lock(mutex_);
      sized->sizes = std::move(sizes);
    }
    begin_sized(queue);
  };
  enter(run, {call->tag, call->single_use}, sized);
}

// Operations whose sizes are known, in the order of their calls: that is the one of all ranks.
void GroupEngine::begin_sized(const Queue& queue) {
  for (;;) {
    SizedPtr next;
    {
      const Lock lock(mutex_);
      const auto at = sized_.find(queue);
      if (at == sized_.end() || !at->second.front()->sizes) return;
      next = std::move(at->second.front());
      at->second.pop_front();
      if (at->second.empty()) sized_.erase(at);
    }
    begin_sized(next);
  }
}

void GroupEngine::begin_sized(const SizedPtr& next) {
  if (next->gathered.defined() || next->is_unknown) {
    const auto done = std::move(next->call->done);
    if (!next->sizes->ok()) return done(std::move(*next->sizes));
    const Description& d = next->own.description;
    const auto rows = d.rows[0] * static_cast<int64_t>(next->call->at.ranks);
    return done(Tensors{next->gathered.reshape(with_rows(rows, d.row))});
  }
  if (waits_for_device(*next))
    fetches_.post([this, next] {
      const CallFrameScope scope(callback_frame());
      enter_sized(next);
    });
  else
    enter_sized(next);
}

void GroupEngine::enter_sized(const SizedPtr& next) {
  const GroupCallPtr& call = next->call;
  const auto run = std::make_shared<Run>();
  run->call = call;
  run->done = std::move(call->done);
  std::optional<Error> why;
  try {
    const Tensor sizes = next->sizes->value()[0];
    prepare(*next, descriptions_in(sizes, call->at), *run);
  } catch (...) {
    why = current_error();
  }
  // Others may know all sizes and wait for it: it fails here as well.
  if (why) {
    run->request = barrier_of(call->at);
    run->request.signature.before = call->collective;
  }
  enter(run, {tag_of_sizes(call->tag), call->single_use, next->use}, nullptr, why);
}

// The ranks tell each other where their tensors are, and all choose alike.
void GroupEngine::begin_on_devices(const SizedPtr& sized) {
  const GroupCallPtr& call = sized->call;
  const Device device = sized->device();
  // Who waits for what this stream has made waits for nothing that it is asked for later.
  for (const Tensor& t : sized->own.brings) t.storage()->leaves();
  if (sized->request) sized->request->elements.each([](Range, const Tensor& t) { t.storage()->leaves(); });
  if (call->at.ranks == 1) {
    bring_to_host(sized->own);
    Request request = request_of(sized->own, {sized->own.description}, call->at, call->members);
    give_back_to(device, request);
    return begin(call, std::move(request));
  }
  std::string why;
  sized->own.description.place = devices_.place_of(device, why);
  if (!why.empty())
    log::info("[" + call->what + "] tensors of " + device.str() + " go by memory of the host: " + why);
  exchange(sized);
}

// Fetching waits for the device, and what comes behind it keeps its place.
bool GroupEngine::waits_for_device(const Sized& next) const {
  if (next.device().is_cpu()) return false;
  if (!fetches_.is_empty()) return true;
  try {
    const GroupCall& call = *next.call;
    return !why_by_host(descriptions_in(next.sizes->value()[0], call.at), call.members).empty();
  } catch (const Error&) {
    return false;  // it will not be done
  }
}

void GroupEngine::prepare(const Sized& next, const std::vector<Description>& all, Run& run) {
  const NoGradGuard guard;
  const GroupCall& call = *next.call;
  const Device device = next.device();
  if (device.is_cpu()) {
    check_memory(all, call.members);
    run.request = request_of(next.own, all, call.at, call.members);
    return;
  }
  if (const std::string by_host = why_by_host(all, call.members); by_host.empty()) {
    run.device = device;
    run.devices = devices_of(all, call.members);
    run.request = next.request ? *next.request : request_of(next.own, all, call.at, call.members);
    send_by_devices(run.request, call.at.rank, next.own.brings.empty() ? Tensor() : next.own.brings[0]);
  } else if (next.request) {
    run.request = *next.request;
    send_by_host(run.request);
  } else {
    Described own = next.own;
    bring_to_host(own);
    run.request = request_of(own, all, call.at, call.members);
    give_back_to(device, run.request);
  }
}

// All ranks have called it.
void GroupEngine::launch(const Operations::Work& work, const RunPtr& run) {
  const auto done = [this, id = work.id, chunk = work.chunk](const std::optional<Error>& why) {
    const CallFrameScope scope(callback_frame());
    Out failed, after;
    if (why) operations_.fail(id, *why, failed);
    operations_.done(id, chunk, after);
    perform(std::move(failed));
    perform(std::move(after));
  };
  if (!needs_devices(run->request.signature.problem)) {
    run->has_begun = true;
    Out after;
    operations_.done(work.id, work.chunk, after);
    const Lock lock(queue_mutex_);
    queue_.push_back(std::move(after));
    return;
  }
  devices_.begin(operation_of(work.id, run->devices, run->request.signature.str()), run->device,
                 std::move(run->request.work), done);
  run->has_begun = true;
}

// The ranks hear from each other that it has failed: those whose devices wait for one that has not come to
// this give up, and that one is silent.
void GroupEngine::stop_devices(const Operations::Finished& unwanted) {
  const auto run = find(unwanted.id);
  if (run && run->has_begun)
    devices_.give_up(operation_of(unwanted.id, run->devices, "").id, run->device, *unwanted.error);
}

}  // namespace troupe::internal::collective
