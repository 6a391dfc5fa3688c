#pragma once

/// Everything that needs nothing but Eigen. Beside it: io.hpp (nlohmann-json) for files, train/trainer.hpp for whole
/// trainings, text.hpp (SentencePiece) for subwords.
#include "eigenformer/autograd/grad_check.hpp"
#include "eigenformer/autograd/ops.hpp"
#include "eigenformer/core/eigen_interop.hpp"
#include "eigenformer/core/print.hpp"
#include "eigenformer/core/random.hpp"
#include "eigenformer/data/batching.hpp"
#include "eigenformer/data/tokenizer_factory.hpp"
#include "eigenformer/generation/generate.hpp"
#include "eigenformer/generation/packed_model.hpp"
#include "eigenformer/metrics/accuracy.hpp"
#include "eigenformer/metrics/bleu.hpp"
#include "eigenformer/nn/module.hpp"
#include "eigenformer/nn/seq2seq.hpp"
#include "eigenformer/nn/sequence_regressor.hpp"
#include "eigenformer/optim/adam.hpp"
#include "eigenformer/optim/average.hpp"
#include "eigenformer/optim/clip.hpp"
#include "eigenformer/optim/schedule.hpp"
#include "eigenformer/optim/sgd.hpp"
#include "eigenformer/version.hpp"
