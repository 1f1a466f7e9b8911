// What the launcher told this process: its number, the size of the cluster, where worker 0 is, and the
// secret.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "net/encryption.h"

namespace troupe {

/// What happens if a graceful shutdown finds something alive that no code outside actors refers to: actors
/// that hold each other, contexts that have not ended.
enum class LeakCheck {
  off,
  warn,   ///< a log line lists it
  error,  ///< shutdown() throws `failed`, listing it; a Cluster in this process looks in its destructor too
};

/// Read from environment variables: TROUPE_RANK and TROUPE_WORLD_SIZE, or those of torchrun (RANK,
/// WORLD_SIZE), a Kubernetes indexed Job (JOB_COMPLETION_INDEX, WORLD_SIZE), Open MPI (OMPI_COMM_WORLD_RANK,
/// _SIZE), MPICH (PMI_RANK, PMI_SIZE), a step of Slurm (SLURM_PROCID, SLURM_STEP_NUM_TASKS), in this order;
/// the address from TROUPE_ADDRESS, or MASTER_ADDR and MASTER_PORT, or what mpirun and srun say of the job;
/// the secret from TROUPE_TOKEN, or the file named by TROUPE_TOKEN_FILE, or ~/.config/troupe/token, which is
/// made if it is not there. A variable that is empty counts as not set. One process of a launcher that sets
/// nothing of ours runs alone.
///
/// Where torchrun's agent has MASTER_PORT for a store of its own, which it says with
/// TORCHELASTIC_USE_AGENT_STORE=True, worker 0 has the port after it (65534 after 65535), on all hosts alike.
/// How a job goes on when workers come and go: TROUPE_ELASTIC=LEAST:MOST:START:WAIT, as `troupe run
/// --elastic` sets it.
struct ElasticJob {
  int64_t least = 1;       ///< it goes on with so many workers, w0 among them, and waits when there are fewer
  int64_t most = 1 << 20;  ///< and takes newcomers up to so many
  int64_t start = 0;       ///< so many does it begin with; others that come are spares. 0: all that are there
  Duration wait{0};        ///< for newcomers, before it gives up
  /// As the variable has it; `invalid` for another text.
  std::string text() const;
  static ElasticJob parse(const std::string& text);
};

struct LaunchEnvironment {
  uint32_t rank = 0, world = 1;
  std::string source;        ///< which variables gave the rank: "RANK"
  std::string job;           ///< the same for all processes of the job, and no other; empty: unknown
  std::string address;       ///< of worker 0: "unix:@name" or "tcp:host:port"
  std::string address_note;  ///< why it is that, in a sentence, if nobody gave it so; empty: somebody did
  std::string token;
  std::string token_note;  ///< where it comes from, in a sentence, if nobody gave it; empty: somebody did
  std::string bind;  ///< TROUPE_BIND: the host that this worker listens on, IPv4 or IPv6; empty: where worker
                     ///< 0's host reaches it
  std::optional<Duration>
      join_timeout;           ///< TROUPE_JOIN_TIMEOUT, in seconds: how long all may take to come together
  bool polling = true;        ///< TROUPE_POLLING=0: every wait sleeps at once
  bool callers_read = true;   ///< TROUPE_CALLERS_READ=0: a thread that waits leaves reading to another
  bool shared_memory = true;  ///< TROUPE_SHARED_MEMORY=0: between processes of a host, sockets only
  std::optional<ElasticJob> elastic;
  bool control = false;                     ///< TROUPE_CONTROL=1: guests of the job may call its actors
  Encryption encryption = Encryption::off;  ///< TROUPE_TLS=1: between hosts; require: every TCP link
  /// TROUPE_TLS_CERTIFICATE, TROUPE_TLS_KEY, TROUPE_TLS_CA; none: the keys of links follow from the token.
  Certificate certificate;

  using Lookup = std::function<std::optional<std::string>(const std::string& name)>;
  /// Empty if no launcher said anything: the program runs alone. `invalid` for half-set or impossible values,
  /// naming the variables.
  static std::optional<LaunchEnvironment> read(const Lookup& lookup);
  static std::optional<LaunchEnvironment> read();
  /// TROUPE_BIND with a port that the system chooses.
  std::string bind_address() const;
  /// A sentence for the log if read() was empty though somebody may have wanted a cluster; else empty.
  static std::string why_alone(const Lookup& lookup);
  static std::string why_alone();
  /// Workers of a program that runs alone: TROUPE_WORKERS, or 3. `invalid` unless a number from 1 to 1024.
  static int workers(const Lookup& lookup);
  static int workers();
  /// TROUPE_ATTACH: the job of which a program that nobody launched is a guest (attach()); empty: of none.
  static std::string attach();
  /// TROUPE_LEAK_CHECK: off, warn (default), error. `invalid` if it is something else.
  static LeakCheck leak_check();
};

}  // namespace troupe
