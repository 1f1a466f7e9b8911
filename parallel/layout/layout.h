// Layouts: who runs what, and how, as a file says it in place of code.
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "collective/mesh.h"
#include "core/value/value.h"
#include "parallel/data/data_parallel.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/server/consistency/server_policy.h"
#include "rref/here.h"

namespace troupe::parallel {

/// The keys of a layout file, which read_layout() reads. All may be left out:
///
///   {
///     "mesh": {"dp": 2, "pp": 2, "tp": 2},   of a model on a mesh: its sizes; those left out are 1, but "ep"
///                                            and "cp", which it has only where they are named
///     "workers": ["w1", "w2", ...],          its members, the last dimension first; else all workers
///     "shard": "all",                        what replicas divide: none, state, gradients, all
///     "gather": "step", "reduce": "step",    of "all", how often: use, step
///     "rows": [3, 1],                        what part of a batch each replica gets; else as many rows
///
///     "stages": ["w1", "w2", "w1"],          of a single pipeline: the worker of each stage
///     "cuts": [2, 5],                        of a model's layers: those before which stages begin
///     "most_live": [4, 2],                   for the schedule "auto"
///
///     "schedule": "zb-h1",                   of both: as make_policy() takes it, or a list of its rows
///     "micro_batches": 8, "slices": 1,
///     "chunks": 2,                           stages of each worker; of a mesh "pp" times as many stages
///     "checkpoint": "except_last",           never, except_last, always
///
///     "policies": {"words": "async"}         of what servers hold, as ServerPolicy::parse() takes them
///   }
///
/// Functions read keys, and note it; what a file does not say is as `otherwise` has it. In the end
/// check_all_read() refuses what nothing has read; build() calls it. All say `invalid`, with the file and the
/// key, what it is and what was expected. A value.
class Layout {
 public:
  /// Says nothing.
  Layout() = default;
  /// `name`: of the file, for errors. `invalid` for keys that there are not.
  Layout(std::string name, ValueMap keys);

  /// Whether the file has that key, which is not read by this.
  bool has(const std::string& key) const { return keys_.contains(key); }
  /// "mesh", which may also be text, "dp=2,pp=2", and "workers". `invalid` unless it fits them. `always`: of
  /// "ep" and "cp", those that the mesh has, of size 1, where the file does not name them.
  Mesh mesh(const Here& here, const std::set<std::string>& always = {});
  /// The dimensions of that mesh, without its workers. Along "pp" each worker has as many points as "chunks"
  /// says (MeshDim::turns).
  std::vector<MeshDim> dims(const std::set<std::string>& always = {});
  /// "workers", one for each member of that mesh; empty: it names none.
  std::vector<std::string> workers(const std::vector<MeshDim>& dims);
  /// `invalid` for a mesh that is larger than 1 along others, of which the program knows nothing.
  void check_dims(const std::vector<std::string>& known);
  /// Of Pipelines on that mesh: all that is not of a single pipeline.
  PipelineOptions pipelines(const Mesh& mesh, PipelineOptions otherwise = {});
  PipelineOptions pipelines(const std::vector<MeshDim>& dims, PipelineOptions otherwise = {});
  /// "rows", for split(x, rows) of so many replicas.
  std::vector<int64_t> rows(size_t replicas, std::vector<int64_t> otherwise = {});
  /// Of DataParallel: "shard", "gather", "reduce".
  DataParallelOptions replicas(DataParallelOptions otherwise = {});
  /// "mesh" and "workers" where there are replicas alone.
  Group replicas_on(const Here& here);

  /// "stages".
  std::vector<std::string> stages(std::vector<std::string> otherwise);
  /// "cuts", which are to make as many stages.
  std::vector<size_t> cuts(size_t stages, std::vector<size_t> otherwise = {});
  /// Of a Pipeline of so many stages.
  PipelineOptions pipeline(size_t stages, PipelineOptions otherwise = {});

  /// The one of "policies" for what the program calls so.
  ServerPolicy policy(const std::string& of, ServerPolicy otherwise = {});

  /// `invalid` for a key, or one of "policies", that nothing has read, saying what would be.
  void check_all_read() const;

 private:
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void wrong(const std::string& what, const Value& value, const std::string& expected) const;
  template <class F>
  auto checked(const std::string& key, const F& f) const;
  const Value* read(const std::string& key);
  /// "mesh", as its workers lie.
  std::vector<MeshDim> members(const std::set<std::string>& always);
  Mesh mesh_of(const Here& here, const std::vector<MeshDim>& dims);
  int whole(const std::string& key, int otherwise);
  std::string text(const std::string& key, std::string otherwise);
  std::vector<int> wholes(const std::string& key, std::vector<int> otherwise);
  std::vector<std::string> texts(const std::string& key, const Value& value) const;
  void read_sharding(Shard& shard, Per& gather, Per& reduce);
  void read_schedule(PipelineOptions& options);
  void check_schedule(size_t stages, const PipelineOptions& options) const;

  std::string name_ = "no file";
  ValueMap keys_;
  std::set<std::string> read_, served_;
};

/// A layout of JSON, in a file of at most 1 MiB. `invalid` for anything but an object, for keys that there
/// are not, and for one that is there twice. What values are is read later.
Layout read_layout(const std::string& path);
/// The same of text; `name`: of the file, for errors.
Layout parse_layout(std::string_view json, const std::string& name);

}  // namespace troupe::parallel
