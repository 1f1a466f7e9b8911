// What PyTorch's functions, modules and optimizers can be told and Troupe's cannot is what
// docs/reference/pytorch-differences.md lists, no more and no less.
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "nn/make.h"
#include "ops/function_catalog.h"
#include "optim/optimizer_catalog.h"
#include "tests/pytorch/signatures.h"
#include "tests/support/places.h"

using namespace troupe;

namespace {

using Option = std::pair<std::string, std::string>;  // of what, and its name

// The constructors of PyTorch 2.15, without device and dtype, which all have, and params.
const std::map<std::string, const char*> kClasses = {
    {"nn.Linear", "in_features out_features bias"},
    {"nn.ReLU", "inplace"},
    {"nn.Tanh", ""},
    {"nn.Sigmoid", ""},
    {"nn.GELU", "approximate"},
    {"nn.Dropout", "p inplace"},
    {"nn.SiLU", "inplace"},
    {"nn.Mish", "inplace"},
    {"nn.Hardswish", "inplace"},
    {"nn.Hardsigmoid", "inplace"},
    {"nn.ReLU6", "inplace"},
    {"nn.SELU", "inplace"},
    {"nn.LogSigmoid", ""},
    {"nn.Softsign", ""},
    {"nn.Tanhshrink", ""},
    {"nn.LeakyReLU", "negative_slope inplace"},
    {"nn.ELU", "alpha inplace"},
    {"nn.CELU", "alpha inplace"},
    {"nn.Hardtanh", "min_val max_val inplace"},
    {"nn.Softplus", "beta threshold"},
    {"nn.Softshrink", "lambd"},
    {"nn.Hardshrink", "lambd"},
    {"nn.Threshold", "threshold value inplace"},
    {"nn.GLU", "dim"},
    {"nn.Softmax", "dim"},
    {"nn.LogSoftmax", "dim"},
    {"nn.Softmin", "dim"},
    {"nn.PReLU", "num_parameters init"},
    {"nn.Conv1d", "in_channels out_channels kernel_size stride padding dilation groups bias padding_mode"},
    {"nn.Conv3d", "in_channels out_channels kernel_size stride padding dilation groups bias padding_mode"},
    {"nn.InstanceNorm1d", "num_features eps momentum affine track_running_stats bias"},
    {"nn.InstanceNorm2d", "num_features eps momentum affine track_running_stats bias"},
    {"nn.InstanceNorm3d", "num_features eps momentum affine track_running_stats bias"},
    {"nn.ConvTranspose1d",
     "in_channels out_channels kernel_size stride padding output_padding groups bias dilation padding_mode"},
    {"nn.ConvTranspose2d",
     "in_channels out_channels kernel_size stride padding output_padding groups bias dilation padding_mode"},
    {"nn.AdaptiveAvgPool2d", "output_size"},
    {"nn.AdaptiveMaxPool2d", "output_size return_indices"},
    {"nn.PixelShuffle", "upscale_factor"},
    {"nn.Identity", ""},
    {"nn.BatchNorm1d", "num_features eps momentum affine track_running_stats bias"},
    {"nn.BatchNorm3d", "num_features eps momentum affine track_running_stats bias"},
    {"nn.RNN", "input_size hidden_size num_layers nonlinearity bias batch_first dropout bidirectional"},
    {"nn.Conv2d", "in_channels out_channels kernel_size stride padding dilation groups bias padding_mode"},
    {"nn.MaxPool2d", "kernel_size stride padding dilation return_indices ceil_mode"},
    {"nn.AvgPool2d", "kernel_size stride padding ceil_mode count_include_pad divisor_override"},
    {"nn.Flatten", "start_dim end_dim"},
    {"nn.Embedding", "num_embeddings embedding_dim padding_idx max_norm norm_type scale_grad_by_freq sparse"},
    {"nn.EmbeddingBag",
     "num_embeddings embedding_dim max_norm norm_type scale_grad_by_freq mode sparse include_last_offset "
     "padding_idx"},
    {"nn.LayerNorm", "normalized_shape eps elementwise_affine bias"},
    {"nn.RMSNorm", "normalized_shape eps elementwise_affine"},
    {"nn.GroupNorm", "num_groups num_channels eps affine bias"},
    {"nn.BatchNorm2d", "num_features eps momentum affine track_running_stats bias"},
    {"nn.MultiheadAttention",
     "embed_dim num_heads dropout bias add_bias_kv add_zero_attn kdim vdim batch_first"},
    {"nn.TransformerEncoderLayer",
     "d_model nhead dim_feedforward dropout activation layer_norm_eps batch_first norm_first bias"},
    {"nn.LSTM", "input_size hidden_size num_layers bias batch_first dropout bidirectional proj_size"},
    {"nn.GRU", "input_size hidden_size num_layers bias batch_first dropout bidirectional"},
    {"nn.Sequential", "args"},
    {"optim.SGD", "lr momentum dampening weight_decay nesterov maximize foreach differentiable fused"},
    {"optim.Adam",
     "lr betas eps weight_decay amsgrad foreach maximize capturable differentiable fused "
     "decoupled_weight_decay"},
    {"optim.AdamW", "lr betas eps weight_decay amsgrad maximize foreach capturable differentiable fused"},
    {"optim.Adamax", "lr betas eps weight_decay foreach maximize differentiable capturable"},
    {"optim.RMSprop",
     "lr alpha eps weight_decay momentum centered capturable foreach maximize differentiable"},
    {"optim.Rprop", "lr etas step_sizes capturable foreach maximize differentiable"},
    {"optim.Adagrad",
     "lr lr_decay weight_decay initial_accumulator_value eps foreach maximize differentiable fused"},
    {"optim.NAdam",
     "lr betas eps weight_decay momentum_decay decoupled_weight_decay foreach maximize capturable "
     "differentiable"},
    {"optim.RAdam",
     "lr betas eps weight_decay decoupled_weight_decay foreach maximize capturable differentiable"},
    {"optim.Adafactor", "lr beta2_decay eps d weight_decay foreach maximize"},
    {"optim.Muon", "lr weight_decay momentum nesterov ns_coefficients eps ns_steps adjust_lr_fn"},
    {"optim.Adadelta", "lr rho eps weight_decay foreach capturable maximize differentiable"},
};

// What has another name here.
const std::multimap<std::string, std::string> kRenamed = {
    {"in_features", "in"},
    {"out_features", "out"},
    {"in_channels", "in"},
    {"out_channels", "out"},
    {"kernel_size", "kernel"},
    {"num_embeddings", "count"},
    {"embedding_dim", "width"},
    {"normalized_shape", "shape"},
    {"num_groups", "groups"},
    {"num_channels", "channels"},
    {"num_features", "channels"},
    {"embed_dim", "width"},
    {"num_heads", "heads"},
    {"d_model", "width"},
    {"nhead", "heads"},
    {"input_size", "input"},
    {"hidden_size", "hidden"},
    {"num_layers", "layers"},

    {"args", "layers"},
    {"betas", "beta1"},
    {"etas", "eta_minus"},
    {"step_sizes", "step_min"},
    {"eps", "eps1"},
    {"ns_coefficients", "ns_a"},
    {"adjust_lr_fn", "match_rms_adamw"},
};

bool has(const Entry& entry, const std::string& name) {
  return std::ranges::find(entry.parameters, name, &Parameter::name) != entry.parameters.end();
}

void add_missing(std::set<Option>& out, const Entry& entry, const std::string& called, std::istream& theirs) {
  for (std::string name; theirs >> name;) {
    bool there = has(entry, name);
    for (auto [at, end] = kRenamed.equal_range(name); at != end; ++at) there |= has(entry, at->second);
    if (!there) out.emplace(called, name);
  }
}

std::set<Option> missing_options() {
  std::set<Option> out;
  std::map<std::string, Entry> ours;
  for (const ops::Op* op : ops::all_ops())
    if (!op->internal) ours.emplace(op->name, ops::entry_of(*op));
  for (const auto& f : ops::functions()) ours.emplace(f.name, f);
  for (const testing::Signature& s : testing::pytorch_signatures()) {
    std::string names;
    std::istringstream list(s.parameters);
    for (std::string one; std::getline(list, one, ',');) names += one.substr(0, one.find('=')) + " ";
    std::istringstream theirs(names);
    if (const auto it = ours.find(s.name); it != ours.end()) add_missing(out, it->second, s.name, theirs);
  }
  const auto classes = [&](std::span<const Entry> entries, const std::vector<testing::Counterpart>& beside) {
    for (const testing::Counterpart& c : beside) {
      const std::string name = std::string(c.pytorch).substr(0, std::string(c.pytorch).find(','));
      if (name == "none") continue;
      INFO(name);
      const auto theirs = kClasses.find(name);
      const auto entry = std::ranges::find(entries, std::string(c.name), &Entry::name);
      REQUIRE((theirs != kClasses.end() && entry != entries.end()));
      std::istringstream names(theirs->second);
      add_missing(out, *entry, name, names);
    }
  };
  const std::vector<Entry> modules(nn::modules().begin(), nn::modules().end());
  classes(modules, testing::modules_beside());
  classes(optim::optimizers(), testing::optimizers_beside());
  return out;
}

// The words in backquotes.
std::vector<std::string> quoted(const std::string& cell) {
  std::vector<std::string> out;
  for (size_t at = 0; (at = cell.find('`', at)) != std::string::npos;) {
    const size_t end = cell.find('`', at + 1);
    if (end == std::string::npos) break;
    out.push_back(cell.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return out;
}

std::set<Option> listed_options() {
  std::ifstream page(testing::kSourceFolder + std::string("/docs/reference/pytorch-differences.md"));
  std::set<Option> out;
  bool here = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("#")) here = line == "## Options that are not there";
    if (!here || !line.starts_with("| `")) continue;
    std::istringstream cells(line.substr(1));
    std::string of, options;
    std::getline(cells, of, '|'), std::getline(cells, options, '|');
    for (const std::string& what : quoted(of))
      for (const std::string& option : quoted(options)) {
        INFO(what << " " << option << " stands there twice");
        CHECK(out.emplace(what, option).second);
      }
  }
  return out;
}

}  // namespace

TEST_CASE(
    "docs/reference/pytorch-differences.md lists every option of PyTorch that is not there, and no other") {
  const std::set<Option> missing = missing_options(), listed = listed_options();
  for (const auto& [what, option] : missing)
    if (!listed.contains({what, option})) FAIL_CHECK(what << " lacks " << option << ", which is not said");
  for (const auto& [what, option] : listed)
    if (!missing.contains({what, option})) FAIL_CHECK(what << " has " << option << ", or PyTorch has not");
}
