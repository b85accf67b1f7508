#pragma once

#include <cstdint>
#include <memory>

#include "pareprop/models/layers.h"
#include "pareprop/models/model.h"
#include "pareprop/models/overrides.h"

namespace pareprop::models {

struct RobertaConfig {
  std::int64_t vocabulary = 50265;
  std::int64_t positions = 514;  // rows of the table
  std::int64_t length = 512;     // tokens of a sequence, at most longest()
  std::int64_t width = 768;
  int depth = 12;
  std::int64_t heads = 12;
  std::int64_t mlp_hidden = 3072;
  double eps = 1e-5;
  DropRates drop = {.dropout = 0.1, .drop_path = 0.0};
  bool qkv_bias = true;
  Ending ending = Ending::concat;  // of the reversible network
  Encoder encoder = Encoder::norm_first;
  std::int64_t classes = 0;  // of whole texts; 0: words are guessed

  static constexpr std::int64_t kPadding = 1;  // the token id, but for BERT
  std::int64_t padding() const { return encoder == Encoder::bert ? 0 : kPadding; }
  // The row of the first position; those before it are for padding.
  std::int64_t first_position() const { return encoder == Encoder::bert ? 0 : kPadding + 1; }
  std::int64_t longest() const { return positions - first_position(); }
};

// The elements of `target`, token ids, that are scored: Long.
at::Tensor scored_tokens(const at::Tensor& target);

void check(const RobertaConfig& config);

// Token, position and type embedding with norm and dropout; shared by both networks.
class RobertaEmbedding : public torch::nn::Module {
 public:
  RobertaEmbedding(const RobertaConfig& config, WeightMaker& make);
  struct Embedded {
    at::Tensor x;      // (batch, length, width)
    at::Tensor words;  // (vocabulary, width), also the last layer's weight
  };
  // Throws std::invalid_argument when a token is outside the vocabulary or the sequence is too
  // long.
  Embedded forward(const Batch& batch, const Pass& pass);

 private:
  RobertaConfig config_;
  at::Tensor word_, position_, type_;
  std::shared_ptr<NormLayer> norm_;
};

// A masked language model, whose scores are made at scored positions only; or, with classes, a
// network that reads the first token of a text.
class RobertaBase : public Model {
 public:
  at::Tensor forward(const Batch& batch, const ForwardOptions& options = {}) override;
  at::Tensor row_targets(const Batch& batch) const override;
  Batch example(std::int64_t batch, std::uint64_t seed) const override;
  std::int64_t tokens() const override { return config_.length; }

  const RobertaConfig& config() const { return config_; }

 protected:
  RobertaBase(const RobertaConfig& config, WeightMaker& make);
  // `features` is the width of what follows the blocks.
  void add_head(std::int64_t features, WeightMaker& make);

  // All blocks: (batch, length, width) -> (batch, length, features).
  virtual at::Tensor encode(const at::Tensor& x, const at::Tensor& score_bias,
                            const ForwardOptions& options, const std::shared_ptr<Pass>& pass) = 0;
  ScoredLoss scored_loss(const Batch& batch, const ForwardOptions& options) override;

  RobertaConfig config_;

 private:
  // Scores are the products of both, plus a bias.
  struct Guesses {
    at::Tensor h;      // (rows, width)
    at::Tensor words;  // the table
  };
  Guesses guess(const Batch& batch, const ForwardOptions& options);
  // What follows the blocks, behind the last norm: of the scored tokens, or of the first of a text.
  struct Read {
    at::Tensor h;
    at::Tensor words;
  };
  Read read(const Batch& batch, const ForwardOptions& options);
  bool classifies() const { return config_.classes > 0; }

  std::shared_ptr<RobertaEmbedding> embedding_;
  std::shared_ptr<NormLayer> norm_, head_norm_;                     // norm_ null: none
  std::shared_ptr<LinearLayer> head_dense_, head_pool_, head_out_;  // the last two of classes
  at::Tensor head_bias_;
};

// Whether it gives the scores of classes of whole texts.
bool classifies_texts(const Model& model);

// Two streams that start as the embedding; the head reads their ending.
class RevRoberta : public RobertaBase {
 public:
  RevRoberta(const RobertaConfig& config, const WeightOptions& weights);

 protected:
  at::Tensor encode(const at::Tensor& x, const at::Tensor& score_bias,
                    const ForwardOptions& options, const std::shared_ptr<Pass>& pass) override;

 private:
  RevRoberta(const RobertaConfig& config, WeightMaker make);
  Stack stack_{nullptr};
};

class PlainRoberta : public RobertaBase {
 public:
  PlainRoberta(const RobertaConfig& config, const WeightOptions& weights);

 protected:
  at::Tensor encode(const at::Tensor& x, const at::Tensor& score_bias,
                    const ForwardOptions& options, const std::shared_ptr<Pass>& pass) override;

 private:
  PlainRoberta(const RobertaConfig& config, WeightMaker make);
  Stack stack_{nullptr};
};

}  // namespace pareprop::models
