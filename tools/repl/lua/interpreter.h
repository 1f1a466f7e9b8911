// A Lua state with everything that scripts of Troupe may name.
#pragma once
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "script/session.h"
#include "tools/repl/lua/lua.h"
#include "troupe/cluster/launch.h"

namespace troupe::repl {

/// What became of a chunk.
struct ChunkOutcome {
  bool ok = true;
  bool interrupted = false;
  bool incomplete = false;  ///< not compiled: the text goes on (an open block, an open string)
  std::string error;
  int code = 0;  ///< that a script ends with: of the C++ error, if it is one
};

/// Runs Lua on the thread that made it. Global functions and tables are listed in docs/reference/shell.md.
class Interpreter {
 public:
  /// Where cluster() may make another cluster, once the last one has ended; empty: it may not.
  using MakeCluster = std::function<std::unique_ptr<Cluster>(int workers)>;

  Interpreter(std::unique_ptr<Cluster> cluster, MakeCluster make_cluster, std::vector<std::string> arguments);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;

  /// Compiles and runs; `name` stands in messages ("=stdin", "@file.lua"). At a prompt, an expression alone
  /// is evaluated, and what a line gives is printed, nil as well.
  ChunkOutcome run(const std::string& text, const std::string& name, bool at_prompt);
  /// Whether the text, an expression or a chunk, goes on: an open block, an open string.
  bool incomplete(const std::string& text);
  /// Names that may stand for the end of `line`, each a replacement for its last word.
  std::vector<std::string> completions(const std::string& line);

  script::Session& session();
  /// Drops what scripts hold, and runs their finalizers; then ends the cluster: in order, or at once.
  void end(bool in_order);
  /// Ends what runs, whatever it catches; exit_code() says what a script has asked for.
  void exit(int code);
  std::optional<int> exit_code() const { return exit_code_; }
  /// An error with this text, whose exit code is that, is about to become one of Lua's.
  void note_error(const std::string& text, int code) { last_error_ = {text, code}; }
  /// Whether this error of Lua's is that of a lost worker.
  bool is_loss(const std::string& text) const {
    return last_error_.second == kExitPeerLost && text.ends_with(last_error_.first);
  }
  Cluster& cluster() { return *cluster_; }
  /// Ends the cluster, and makes another one. `invalid` within a function of this shell that calls others.
  void remake_cluster(lua_State* L, int workers);
  /// `f` runs once, before another cluster takes the place of this one.
  void at_end_of_cluster(std::function<void()> f) { at_end_of_cluster_.push_back(std::move(f)); }
  /// The step that calls of a coroutine are part of; null: none.
  std::shared_ptr<script::Step> step_of(lua_State* L);
  void enter(lua_State* L, const std::shared_ptr<script::Step>& step) { steps_[L].push_back(step); }
  /// A coroutine has the steps that its maker has.
  void inherit(lua_State* from, lua_State* to) { steps_[to] = steps_[from]; }
  void leave_all(lua_State* L) { steps_.erase(L); }
  void push_running(lua_State* L);
  void pop_running();
  /// A function of this shell runs in this scope.
  class Inside {
   public:
    explicit Inside(Interpreter& interpreter) : depth_(++interpreter.depth_) {}
    ~Inside() { --depth_; }
    Inside(const Inside&) = delete;

   private:
    int& depth_;
  };
  /// Memory that Lua does not know of has been handed to it.
  void charge(lua_State* L, size_t bytes);
  lua_State* state() { return L_; }

  /// In a signal handler: waits end, and so do chunks, whatever they catch. Where nothing has ended at the
  /// third one, the process does.
  static void interrupt(int) noexcept;

 private:
  void open_libraries();
  void close_state();
  ChunkOutcome outcome_of(int status, const std::string& text);

  std::unique_ptr<Cluster> cluster_;
  MakeCluster make_cluster_;
  std::unique_ptr<script::Session> session_;
  std::vector<std::function<void()>> at_end_of_cluster_;
  lua_State* L_ = nullptr;
  size_t started_ = 0;  // workers, at first
  size_t used_ = 0, charged_ = 0;
  int depth_ = 0;  // functions of this shell that run within each other
  std::optional<int> exit_code_;
  std::string warning_;  // the parts of one that have come
  std::pair<std::string, int> last_error_;
  std::map<lua_State*, std::vector<std::shared_ptr<script::Step>>> steps_;
  static void* allocate(void* self, void* at, size_t old_size, size_t new_size);
};

/// What a value looks like at the prompt, shortened; bytes that move a terminal's cursor are made visible.
std::string shown(lua_State* L, int at);

/// What a function of this shell is, for a name alone at the prompt; of help, everything. Empty: another one.
std::string about_function(lua_State* L, int at);

// ---- what each file of this folder adds to a state
void open_coroutines(lua_State* L);       ///< coroutine.*, setmetatable, in place of Lua's
void open_tensors(lua_State* L);          ///< Tensor, ops.*
void open_futures(lua_State* L);          ///< answers of calls
void open_cluster(lua_State* L);          ///< spawn, references, contexts, workers, ps, inspect, waits
void open_modules(lua_State* L);          ///< nn.*
void open_training(lua_State* L);         ///< optim.*, data.*
void open_feeds(lua_State* L);            ///< feed, and mixtures in data
void open_jobs(lua_State* L);             ///< job, keep
void open_parallel(lua_State* L);         ///< pipeline, serve
void open_groups(lua_State* L);           ///< group, mesh
void open_replicas(lua_State* L);         ///< data_parallel, split
void open_summaries(lua_State* L);        ///< summary
void open_claims(lua_State* L);           ///< claim
void open_language_models(lua_State* L);  ///< llm
void open_drawing(lua_State* L);          ///< plot, timeline, graph, trace
void open_help(lua_State* L);             ///< help, time, names for completion

}  // namespace troupe::repl
