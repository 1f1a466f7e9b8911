// What only a card can show of NCCL, with one GPU: two processes that are two ranks on it, by different host
// ids. Correctness only: they share the GPU in slices of time, and their bytes go by sockets of the loopback
// interface.
//   gpu_nccl PART   library | one | two | opposite | turns | killed | blocking | cost
// Prints a line of JSON for each fact; exit code 1 if something is wrong, 77 without a GPU or NCCL.
#include <cuda_runtime_api.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "collective/nccl/cuda/nccl_launcher.h"
#include "collective/nccl/turns_packet.h"
#include "core/cuda/install.h"
#include "core/tensor/creation.h"

using namespace troupe;
using namespace troupe::internal::collective;
using Clock = std::chrono::steady_clock;

namespace {

int rank = 0, peer_fd = -1;
pid_t child = -1;
cudaStream_t stream;

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }
[[noreturn]] void die(const std::string& why) {
  std::printf("{\"rank\": %d, \"wrong\": \"%s\"}\n", rank, why.c_str());
  std::fflush(stdout);
  if (child > 0) kill(child, SIGKILL);
  _exit(1);
}
void cu(cudaError_t e, const char* what) {
  if (e != cudaSuccess) die(std::string(what) + ": " + cudaGetErrorString(e));
}
void say(const std::string& json) {
  std::printf("{\"rank\": %d, %s}\n", rank, json.c_str());
  std::fflush(stdout);
}
void tell(const void* p, size_t n) {
  if (send(peer_fd, p, n, MSG_NOSIGNAL) != static_cast<ssize_t>(n)) die("the other process has gone");
}
void hear(void* p, size_t n) {
  if (recv(peer_fd, p, n, MSG_WAITALL) != static_cast<ssize_t>(n)) die("the other process has gone");
}
void meet() {
  char c = 0;
  tell(&c, 1), hear(&c, 1);
}

// Before any call of CUDA: a context does not survive a fork.
void become_two() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) die("socketpair");
  child = fork();
  rank = child == 0;
  peer_fd = ends[rank];
  close(ends[1 - rank]);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  if (!std::getenv("NCCL_MULTI_RANK_GPU_ENABLE")) setenv("NCCL_HOSTID", rank ? "troupe-b" : "troupe-a", 1);
}

const Nccl& nccl() {
  const Nccl* n = Nccl::get();
  if (!n) {
    std::fprintf(stderr, "no NCCL: %s\n", Nccl::why().c_str());
    _exit(77);
  }
  return *n;
}
void start() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    std::fprintf(stderr, "no GPU\n");
    _exit(77);
  }
  cu(cudaSetDevice(0), "cudaSetDevice");
  cu(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
}
void nc(ncclResult_t r, const char* what) {
  if (r != ncclSuccess && r != ncclInProgress)
    die(std::string(what) + ": " + nccl().GetErrorString(r) + ", " + nccl().GetLastError(nullptr));
}
bool ready(ncclComm_t c, double limit) {
  const auto t = Clock::now();
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && seconds_since(t) < limit)
    nc(nccl().CommGetAsyncError(c, &state), "polling");
  if (state != ncclSuccess && state != ncclInProgress)
    say("\"async_error\": \"" + std::string(nccl().GetErrorString(state)) + "\"");
  return state == ncclSuccess;
}
ncclComm_t make(int n, const ncclUniqueId& id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t c = nullptr;
  const auto t = Clock::now();
  nc(nccl().CommInitRankConfig(&c, n, id, rank, &config), "init");
  if (!ready(c, 60)) die("no communicator after 60 s");
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  say("\"init_s\": " + std::to_string(seconds_since(t)) +
      ", \"used_mib\": " + std::to_string((total - free) >> 20));
  return c;
}
ncclComm_t pair() {
  ncclUniqueId id;
  if (rank == 0) {
    nc(nccl().GetUniqueId(&id), "an id");
    tell(&id, sizeof id);
  } else {
    hear(&id, sizeof id);
  }
  return make(2, id);
}
float* buffer(size_t n, float value) {
  float* p = nullptr;
  cu(cudaMallocAsync(reinterpret_cast<void**>(&p), n * sizeof(float), stream), "memory");
  const std::vector<float> host(n, value);
  cu(cudaMemcpyAsync(p, host.data(), n * sizeof(float), cudaMemcpyHostToDevice, stream), "a copy");
  cu(cudaStreamSynchronize(stream), "waiting");
  return p;
}
void expect(const float* p, size_t n, float value, const char* what) {
  std::vector<float> host(n);
  cu(cudaMemcpyAsync(host.data(), p, n * sizeof(float), cudaMemcpyDeviceToHost, stream), "a copy");
  cu(cudaStreamSynchronize(stream), "waiting");
  for (const float x : host)
    if (x != value)
      die(std::string(what) + ": " + std::to_string(x) + " instead of " + std::to_string(value));
}
bool done(cudaStream_t s, double limit) {
  for (const auto t = Clock::now(); seconds_since(t) < limit;)
    if (cudaStreamQuery(s) == cudaSuccess) return true;
  return false;
}

// As Launcher ends a communicator: its kernels stop first, memory is freed when none runs.
void end(ncclComm_t c) {
  const auto t = Clock::now();
  const ncclResult_t revoked = nccl().CommRevoke(c, NCCL_REVOKE_DEFAULT);
  const double returned = seconds_since(t);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && seconds_since(t) < 20) nccl().CommGetAsyncError(c, &state);
  const bool stopped = done(stream, 5);
  say("\"revoke\": \"" + std::string(nccl().GetErrorString(revoked)) + "\", \"returned_s\": " +
      std::to_string(returned) + ", \"quiet_s\": " + std::to_string(seconds_since(t)) +
      ", \"stream_is_free\": " + (stopped ? "true" : "false"));
  const auto before = Clock::now();
  nccl().GroupStart();
  nccl().CommAbort(c);
  nccl().GroupEnd();
  say("\"abort_s\": " + std::to_string(seconds_since(before)));
  if (!done(stream, 5)) die("the stream is stuck after abort");
}

// ---- the parts
void library() {
  say("\"version\": " + std::to_string(nccl().version));
  ncclUniqueId id;
  nc(nccl().GetUniqueId(&id), "an id");
  const std::string ports = "ss -ltnp 2>/dev/null | grep pid=" + std::to_string(getpid());
  if (std::system(ports.c_str()) != 0) say("\"listens\": \"nothing seen\"");
}
void one() {
  start();
  ncclUniqueId id;
  nc(nccl().GetUniqueId(&id), "an id");
  ncclComm_t c = make(1, id);
  float *x = buffer(1 << 20, 3), *y = buffer(1 << 20, 0);
  nc(nccl().AllReduce(x, y, 1 << 20, ncclFloat32, ncclSum, c, stream), "all_reduce");
  if (!ready(c, 10)) die("all_reduce is not issued");
  expect(y, 1 << 20, 3, "all_reduce of one");
  nccl().CommAbort(c);
}
void two() {
  become_two();
  start();
  ncclComm_t c = pair();
  for (size_t n = 256; n <= (size_t{64} << 20); n *= 16) {
    float *x = buffer(n, static_cast<float>(rank + 1)), *y = buffer(n, 0);
    nc(nccl().AllReduce(x, y, n, ncclFloat32, ncclSum, c, stream), "all_reduce");
    if (!ready(c, 20) || !done(stream, 60)) die("all_reduce does not end");
    expect(y, n, 3, "all_reduce");
    nccl().GroupStart();
    nc(nccl().Send(x, n, ncclFloat32, 1 - rank, c, stream), "send");
    nc(nccl().Recv(y, n, ncclFloat32, 1 - rank, c, stream), "recv");
    nc(nccl().GroupEnd(), "group");
    if (!ready(c, 20) || !done(stream, 60)) die("an exchange does not end");
    expect(y, n, static_cast<float>(2 - rank), "exchange");
    cudaFreeAsync(x, stream), cudaFreeAsync(y, stream);
  }
  meet();
  nccl().CommAbort(c);
  say("\"two\": \"right\"");
}
// From which size on do two sends against each other lock up? A fact for docs, no test.
void opposite() {
  become_two();
  start();
  for (size_t n = size_t{1} << 14; n <= (size_t{64} << 20); n *= 8) {
    ncclComm_t c = pair();
    float *x = buffer(n, 1), *y = buffer(n, 0);
    nc(nccl().Send(x, n, ncclFloat32, 1 - rank, c, stream), "send");
    bool ends = ready(c, 5);
    if (ends) {
      nc(nccl().Recv(y, n, ncclFloat32, 1 - rank, c, stream), "recv");
      ends = ready(c, 5) && done(stream, 5);
    }
    say("\"opposite_bytes\": " + std::to_string(n * 4) + ", \"ends\": " + (ends ? "true" : "false"));
    meet();
    end(c);
  }
}
// Random transfers both ways, as workers do them.
void turns() {
  become_two();
  start();
  const Device device(kCuda, 0);
  const auto peer = static_cast<uint32_t>(1 - rank);
  const WorkerDevice here{static_cast<uint32_t>(rank), 0}, there{peer, 0};
  NcclLauncher launcher(nccl(), here, device);
  Turns turns(here);
  constexpr uint64_t kEach = 100;
  std::map<DeviceOperationId, Tensor> came;
  std::mt19937 random(7);
  const auto send_packet = [&](TurnsPacket packet) {
    const std::vector<uint64_t> words = words_of(packet);
    const uint64_t count = words.size();
    tell(&count, sizeof count);
    tell(words.data(), 8 * count);
  };
  const auto perform = [&](Turns::Out out) {
    if (out.refused) die(out.refused->message());
    for (auto& [to, message] : out.messages) send_packet({0, 0, std::move(message), ""});
    for (const DeviceOperation& o : out.launches) launcher.launch(o.id);
    for (const Turns::Dropped& d : out.dropped) die("dropped: " + d.error.message());
  };
  const auto size = [](uint64_t number) { return int64_t{1} << (10 + number % 13); };
  const auto operation = [&](WorkerDevice from, WorkerDevice to, uint64_t number) {
    return DeviceOperation{{1000 + from.worker, number}, to, {{0, 0}, {1, 0}}, "transfer"};
  };
  const auto begin = [&](const DeviceOperation& o, DeviceStep step) {
    DeviceWork work;
    work.steps.push_back(std::move(step));
    auto inputs = device_library()->inputs_of(work, device);
    launcher.expect(o, std::move(work), std::move(inputs));
  };
  uint64_t asked = 0, left = 2 * kEach;
  for (const auto from = Clock::now(); left > 0;) {
    if (seconds_since(from) > 120) die("turns: " + turns.state());
    if (asked < kEach && random() % 3 == 0) {
      const uint64_t n = asked++;
      begin(operation(here, there, n),
            {DeviceStep::send, full({size(n)}, static_cast<double>(n), {float32, device}), {}, peer});
    }
    uint64_t count = 0;
    if (recv(peer_fd, &count, sizeof count, MSG_DONTWAIT | MSG_PEEK) == sizeof count) {
      hear(&count, sizeof count);
      std::vector<uint64_t> words(count);
      hear(words.data(), 8 * count);
      const auto packet = packet_in(words);
      if (!packet) die("what came is no message of turns");
      const TurnMessage& message = packet->message;
      const DeviceOperationId id = message.operation.id;
      if (!packet->library_id.empty()) {
        launcher.has_id(id, packet->library_id);
      } else {
        if (message.kind == TurnMessage::ready) {
          came[id] = full({size(id.number)}, -1.0, {float32, device});
          begin(operation(there, here, id.number), {DeviceStep::receive, {}, came[id], peer});
        }
        Turns::Out out;
        turns.receive(there, message, out);
        perform(std::move(out));
      }
    }
    bool moved = false;
    for (const LauncherEvent& e : launcher.poll(moved)) {
      Turns::Out out;
      if (e.kind == LauncherEvent::failed) die("failed: " + e.text);
      if (e.kind == LauncherEvent::ready) turns.ready(e.operation, false, out);
      if (e.kind == LauncherEvent::made_id)
        send_packet({0, 0, {.operation = {.id = e.operation.id}}, e.text});
      perform(std::move(out));
      if (e.kind != LauncherEvent::ended) continue;
      const DeviceOperationId id = e.operation.id;
      turns.finished(id);
      if (const auto x = came.find(id); x != came.end())
        for (const float v : x->second.to_vector<float>())
          if (v != static_cast<float>(id.number)) die("a transfer brought " + std::to_string(v));
      --left;
    }
  }
  say("\"turns\": \"" + std::to_string(2 * kEach) +
      " transfers are right\", \"open\": " + std::to_string(turns.open() + launcher.open()));
  meet();
}
void killed() {
  become_two();
  start();
  ncclComm_t c = pair();
  float* y = buffer(1 << 22, 0);
  if (rank == 1) {
    meet();
    pause();
  }
  nc(nccl().Recv(y, 1 << 22, ncclFloat32, 1, c, stream), "recv");
  meet();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ncclResult_t state = ncclInProgress;
  const auto t = Clock::now();
  while (seconds_since(t) < 5 && (state == ncclInProgress || state == ncclSuccess))
    nccl().CommGetAsyncError(c, &state);
  say("\"after_a_kill\": \"" + std::string(nccl().GetErrorString(state)) +
      "\", \"s\": " + std::to_string(seconds_since(t)));
  end(c);
  expect(buffer(1 << 20, 4), 1 << 20, 4, "the device afterwards");
  say("\"killed\": \"the device works\"");
}
// Which calls wait for a kernel of NCCL that waits for its peer? What the turns' thread must not call.
void blocking() {
  become_two();
  start();
  ncclComm_t c = pair();
  float* y = buffer(1 << 22, 0);
  cudaStream_t other;
  cu(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "a stream");
  meet();
  if (rank == 0) {
    nc(nccl().Recv(y, 1 << 22, ncclFloat32, 1, c, stream), "recv");
    if (!ready(c, 1)) say("\"first_transfer\": \"is not issued before the peer's: it connects\"");
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const std::pair<const char*, std::function<void()>> calls[] = {
        {"cudaMemsetAsync on another stream, and its event",
         [&] {
           cudaMemsetAsync(y, 0, 4, other);
           cudaStreamSynchronize(other);
         }},
        {"cudaMallocAsync of 4 KiB",
         [&] {
           void* p;
           cudaMallocAsync(&p, 4096, other);
         }},
        {"cudaMallocAsync of 4 GiB: the pool grows",
         [&] {
           void* p;
           cudaMallocAsync(&p, size_t{4} << 30, other);
         }},
        {"cudaMallocAsync of too much",
         [&] {
           void* p;
           cudaMallocAsync(&p, size_t{1} << 42, other);
         }},
        {"cudaMemPoolTrimTo",
         [&] {
           cudaMemPool_t p;
           cudaDeviceGetDefaultMemPool(&p, 0);
           cudaMemPoolTrimTo(p, 0);
         }},
        {"cudaHostAlloc",
         [&] {
           void* p;
           cudaHostAlloc(&p, 1 << 20, 0);
         }},
        {"cudaStreamCreate",
         [&] {
           cudaStream_t s;
           cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
         }},
        {"cudaMalloc",
         [&] {
           void* p;
           cudaMalloc(&p, 1 << 20);
         }},
        {"cudaFree",
         [&] {
           cudaFree(nullptr);
           void* p;
           cudaMalloc(&p, 4096);
           cudaFree(p);
         }},
    };
    for (const auto& [name, f] : calls) {
      auto ended = std::make_shared<std::promise<double>>();
      auto future = ended->get_future();
      std::thread([f = f, ended] {
        cudaSetDevice(0);
        const auto t = Clock::now();
        f();
        ended->set_value(seconds_since(t));
      }).detach();
      const bool waits = future.wait_for(std::chrono::seconds(3)) != std::future_status::ready;
      say(std::string("\"call\": \"") + name + "\", \"waits\": " + (waits ? "true" : "false") +
          (waits ? "" : ", \"us\": " + std::to_string(future.get() * 1e6)));
      if (waits) break;  // what comes behind it would wait for it
    }
    meet();
  } else {
    meet();
    nc(nccl().Send(y, 1 << 22, ncclFloat32, 0, c, stream), "send");
  }
  if (!ready(c, 20) || !done(stream, 20)) die("the transfer does not end");
  meet();
  _exit(0);  // threads may be left
}
void cost() {
  become_two();
  start();
  ncclComm_t c = pair();
  float *x = buffer(1 << 18, 1), *y = buffer(1 << 18, 0);
  for (int i = 0; i < 3; ++i) {
    meet();
    const auto t = Clock::now();
    nccl().GroupStart();
    nccl().Send(x, 1 << 18, ncclFloat32, 1 - rank, c, stream);
    nccl().Recv(y, 1 << 18, ncclFloat32, 1 - rank, c, stream);
    nccl().GroupEnd();
    const double returned = seconds_since(t);
    if (!ready(c, 20)) die("not issued");
    const double issued = seconds_since(t);
    if (!done(stream, 20)) die("does not end");
    say("\"group_end_us\": " + std::to_string(returned * 1e6) + ", \"issued_us\": " +
        std::to_string(issued * 1e6) + ", \"done_us\": " + std::to_string(seconds_since(t) * 1e6));
  }
  meet();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string part = argc > 1 ? argv[1] : "";
  const std::pair<const char*, void (*)()> parts[] = {
      {"library", library}, {"one", one},       {"two", two},           {"opposite", opposite},
      {"turns", turns},     {"killed", killed}, {"blocking", blocking}, {"cost", cost}};
  for (const auto& [name, f] : parts)
    if (part == name) {
      f();
      int status = 0;
      if (child > 0 && waitpid(child, &status, 0) == child)
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
      return 0;
    }
  std::fprintf(stderr, "gpu_nccl library | one | two | opposite | turns | killed | blocking | cost\n");
  return 2;
}
