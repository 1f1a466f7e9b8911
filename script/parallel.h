// Pipelines and parameter servers from values.
#pragma once
#include <memory>

#include "parallel/pipeline/pipelines.h"
#include "parallel/server/served_parameters.h"
#include "script/session.h"

namespace troupe::script {

/// A pipeline of these stages: each a reference to an actor, whose forward is the stage, or a map {actor,
/// method, loss, gives, takes, carries} as parallel::Stage has them. Options: schedule, micro_batches,
/// chunks, checkpoint ("never", "except_last", "always"), timeout (seconds), and loss: the name of an
/// operator of (output, target), where no stage has one. `invalid` with the nearest name for other options.
std::unique_ptr<parallel::Pipeline> make_pipeline(Session& session, ValueList stages, ValueMap options);

class Options;
/// The options that pipelines on a mesh have besides what they are made of.
parallel::PipelineOptions mesh_pipeline_options(Options& options);

/// The mesh of whose workers each has as many stages as the options have chunks.
Mesh with_chunks(const Mesh& mesh, const std::string& stages, const parallel::PipelineOptions& options);

/// Pipelines on a mesh.
struct MeshPipelines {
  parallel::Pipelines pipelines;
  /// In the order of the mesh's points.
  const std::vector<AnyRef>& actors() const { return pipelines.members(); }
  std::shared_ptr<const struct LanguageModel> language = nullptr;  ///< that they train, if it is one
};
/// Pipelines on a mesh of workers. `stages`: a module's specification for each stage, of which each of its
/// workers gets a "Module", or with Shard::all a "ShardedModule", or where the mesh cuts layers ("tp", "cp",
/// "ep") its part of a parallel::MeshModule; or actors, one for each point of the mesh. The options of
/// make_pipeline(), and shard, gather, reduce ("use" or "step"), method ("forward"), stages and replicas (the
/// dimensions, "pp" and "dp"), context ("heads" or "ring"), experts (a number, or a map); loss: a method of
/// the actors, or an operator.
std::unique_ptr<MeshPipelines> make_pipelines(Session& session, const Mesh& mesh, ValueList stages,
                                              ValueMap options);

/// Puts tensors into servers on workers ("w1", or a list). Options: policy, trainers, optimizer (a name), its
/// options (lr, ...), lr_by_delay, block_bytes, backup (a worker). `invalid` as make_pipeline().
parallel::Served serve_tensors(Session& session, const Value& workers, const Tensors& start,
                               ValueMap options);

/// A report as a value: schedule, duration, bubble, busy, exposed, peak_live.
Value report_value(const parallel::StepReport& report);
/// One for each block: policy, version, open_step, trainers, missing, delays, weights, late, aborted, lost.
Value report_value(const std::vector<parallel::ServerReport>& report);

}  // namespace troupe::script
