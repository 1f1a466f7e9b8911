// docs/reference/operators.md: what the registries have, with PyTorch's names beside.
#include <algorithm>
#include <map>

#include "core/entry/maker.h"
#include "nn/make.h"
#include "ops/function_catalog.h"
#include "optim/optimizer_catalog.h"
#include "tests/pytorch/signatures.h"

namespace troupe::testing {

const std::vector<Counterpart>& modules_beside() {
  static const std::vector<Counterpart> all = {
      {"linear", "nn.Linear", "nn::Linear"},
      {"relu", "nn.ReLU", "nn::ReLU"},
      {"tanh", "nn.Tanh", "nn::Tanh"},
      {"sigmoid", "nn.Sigmoid", "nn::Sigmoid"},
      {"gelu", "nn.GELU", "nn::GELU"},
      {"silu", "nn.SiLU", "nn::SiLU"},
      {"mish", "nn.Mish", "nn::Mish"},
      {"hardswish", "nn.Hardswish", "nn::Hardswish"},
      {"hardsigmoid", "nn.Hardsigmoid", "nn::Hardsigmoid"},
      {"relu6", "nn.ReLU6", "nn::ReLU6"},
      {"selu", "nn.SELU", "nn::SELU"},
      {"log_sigmoid", "nn.LogSigmoid", "nn::LogSigmoid"},
      {"softsign", "nn.Softsign", "nn::Softsign"},
      {"tanhshrink", "nn.Tanhshrink", "nn::Tanhshrink"},
      {"leaky_relu", "nn.LeakyReLU", "nn::LeakyReLU"},
      {"elu", "nn.ELU", "nn::ELU"},
      {"celu", "nn.CELU", "nn::CELU"},
      {"hardtanh", "nn.Hardtanh", "nn::Hardtanh"},
      {"softplus", "nn.Softplus", "nn::Softplus"},
      {"softshrink", "nn.Softshrink", "nn::Softshrink"},
      {"hardshrink", "nn.Hardshrink", "nn::Hardshrink"},
      {"threshold", "nn.Threshold", "nn::Threshold"},
      {"glu", "nn.GLU", "nn::GLU"},
      {"softmax", "nn.Softmax", "nn::Softmax"},
      {"log_softmax", "nn.LogSoftmax", "nn::LogSoftmax"},
      {"softmin", "nn.Softmin", "nn::Softmin"},
      {"prelu", "nn.PReLU", "nn::PReLU"},
      {"conv1d", "nn.Conv1d", "nn::Conv1d"},
      {"conv_transpose1d", "nn.ConvTranspose1d", "nn::ConvTranspose1d"},
      {"conv_transpose2d", "nn.ConvTranspose2d", "nn::ConvTranspose2d"},
      {"conv3d", "nn.Conv3d", "nn::Conv3d"},
      {"instance_norm1d", "nn.InstanceNorm1d", "nn::InstanceNorm1d"},
      {"instance_norm2d", "nn.InstanceNorm2d", "nn::InstanceNorm2d"},
      {"instance_norm3d", "nn.InstanceNorm3d", "nn::InstanceNorm3d"},
      {"adaptive_avg_pool2d", "nn.AdaptiveAvgPool2d", "nn::AdaptiveAvgPool2d"},
      {"adaptive_max_pool2d", "nn.AdaptiveMaxPool2d", "nn::AdaptiveMaxPool2d"},
      {"pixel_shuffle", "nn.PixelShuffle", "nn::PixelShuffle"},
      {"identity", "nn.Identity", "nn::Identity"},
      {"batch_norm1d", "nn.BatchNorm1d", "nn::BatchNorm1d"},
      {"batch_norm3d", "nn.BatchNorm3d", "nn::BatchNorm3d"},
      {"rnn", "nn.RNN", "nn::RNN"},
      {"dropout", "nn.Dropout", "nn::Dropout"},
      {"conv2d", "nn.Conv2d", "nn::Conv2d"},
      {"max_pool2d", "nn.MaxPool2d", "nn::MaxPool2d"},
      {"avg_pool2d", "nn.AvgPool2d", "nn::AvgPool2d"},
      {"flatten", "nn.Flatten", "nn::Flatten"},
      {"embedding", "nn.Embedding", "nn::Embedding"},
      {"embedding_bag", "nn.EmbeddingBag", "nn::EmbeddingBag"},
      {"layer_norm", "nn.LayerNorm", "nn::LayerNorm"},
      {"rms_norm", "nn.RMSNorm", "nn::RMSNorm"},
      {"group_norm", "nn.GroupNorm", "nn::GroupNorm"},
      {"batch_norm2d", "nn.BatchNorm2d", "nn::BatchNorm2d"},
      {"multihead_attention", "nn.MultiheadAttention", "nn::MultiheadAttention"},
      {"transformer_encoder_layer", "nn.TransformerEncoderLayer", "nn::TransformerEncoderLayer"},
      {"lstm", "nn.LSTM", "nn::LSTM"},
      {"gru", "nn.GRU", "nn::GRU"},
      {"sequential", "nn.Sequential", "nn::Sequential"},
  };
  return all;
}

const std::vector<Counterpart>& optimizers_beside() {
  static const std::vector<Counterpart> all = {
      {"sgd", "optim.SGD", "optim::SGD"},
      {"adam", "optim.Adam", "optim::Adam"},
      {"adamw", "optim.AdamW", "optim::AdamW"},
      {"adamax", "optim.Adamax", "optim::Adamax"},
      {"rmsprop", "optim.RMSprop", "optim::RMSprop"},
      {"rprop", "optim.Rprop", "optim::Rprop"},
      {"adagrad", "optim.Adagrad", "optim::Adagrad"},
      {"adadelta", "optim.Adadelta", "optim::Adadelta"},
      {"lamb", "none", "optim::LAMB"},
      {"nadam", "optim.NAdam", "optim::NAdam"},
      {"radam", "optim.RAdam", "optim::RAdam"},
      {"lion", "none", "optim::Lion"},
      {"adafactor", "optim.Adafactor", "optim::Adafactor"},
      {"muon", "optim.Muon", "optim::Muon"},
  };
  return all;
}

const std::vector<Counterpart>& schedules_beside() {
  static const std::vector<Counterpart> all = {
      {"step_decay", "lr_scheduler.StepLR", "optim::step_decay"},
      {"multi_step", "lr_scheduler.MultiStepLR", "optim::multi_step"},
      {"exponential", "lr_scheduler.ExponentialLR", "optim::exponential"},
      {"cosine", "lr_scheduler.CosineAnnealingLR", "optim::cosine"},
      {"warm_up", "lr_scheduler.LinearLR, SequentialLR", "optim::warm_up"},
      {"one_cycle", "lr_scheduler.OneCycleLR", "optim::one_cycle"},
      {"one_cycle_momentum", "the momentum of lr_scheduler.OneCycleLR", "optim::one_cycle_momentum"},
  };
  return all;
}

namespace {

std::string with_prefix(const Signature& s) {
  const bool functional = s.has == Has::functional, method = s.has == Has::method;
  std::string parameters = s.parameters;
  if (method) parameters = parameters.substr(std::min(parameters.size(), std::string("input, ").size()));
  std::string name = s.name;
  if (name.starts_with("linalg_")) name[6] = '.';
  return (functional ? "F." : method ? "Tensor." : "torch.") + name + "(" + parameters + ")";
}

// Bars end cells.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\|");
  return text;
}

std::string forms_of(const Signature& s) {
  return s.has == Has::both ? "function, method" : s.has == Has::method ? "method" : "function";
}

std::vector<Entry> entries_of(const auto& makers) { return {makers.begin(), makers.end()}; }

// A row for each entry; `beside` names what is known of it.
void table(std::string& out, std::span<const Entry> entries, const std::vector<Counterpart>& beside) {
  out += "| C++ | PyTorch | by name | |\n|---|---|---|---|\n";
  for (const Entry& entry : entries) {
    const auto it =
        std::ranges::find(beside, entry.name, [](const Counterpart& c) { return std::string(c.name); });
    out += it == beside.end() ? "| ? | ? |" : std::string("| `") + it->troupe + "` | " + it->pytorch + " |";
    out += " `" + cell(entry.signature()) + "` | " + cell(entry.text) + " |\n";
  }
}

}  // namespace

std::string names_page() {
  std::map<std::string, Signature> theirs;
  for (const Signature& s : pytorch_signatures()) theirs.emplace(s.name, s);
  const std::map<std::string, std::string> own(troupe_only().begin(), troupe_only().end());
  std::map<std::string, Entry> entries;
  for (const ops::Op* op : ops::all_ops())
    if (!op->internal) entries.emplace(op->name, ops::entry_of(*op));
  for (const auto& f : ops::functions()) entries.emplace(f.name, f);

  std::string out =
      "# Operators, modules, optimizers\n\nWritten from the registries by `pytorch_tests \"[write]\"`; a "
      "test "
      "compares. In C++ operators are functions of namespace `troupe` (and `troupe::ops`), methods of "
      "`Tensor`, or "
      "both, as in PyTorch; in the shell they are `ops.NAME` and methods. Modules by name are `nn.NAME` in "
      "the "
      "shell and `nn::make` in C++, optimizers and schedules `optim.NAME`, `optim::make` and "
      "`optim::make_schedule`. "
      "[Differences from PyTorch](pytorch-differences.md) says what is not the same.\n\n## Operators and "
      "functions\n\n"
      "| by name | PyTorch | C++ | |\n|---|---|---|---|\n";
  for (const auto& [name, entry] : entries) {
    out += "| `" + cell(entry.signature()) + "` | ";
    if (const auto it = theirs.find(name); it != theirs.end())
      out += "`" + with_prefix(it->second) + "` | " + forms_of(it->second);
    else if (const auto mine = own.find(name); mine != own.end())
      out += "none: " + mine->second + " | function";
    out += " | " + cell(entry.text) + " |\n";
  }
  out += "\n## Modules\n\n";
  table(out, entries_of(nn::modules()), modules_beside());
  out += "\n## Optimizers\n\n";
  table(out, optim::optimizers(), optimizers_beside());
  out += "\n## Schedules of the learning rate\n\n";
  table(out, entries_of(optim::schedules()), schedules_beside());
  return out;
}

}  // namespace troupe::testing
