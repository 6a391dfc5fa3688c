#pragma once

/// \file
/// The headers whose functions eigenformer::compiled holds beside those of eigenformer.hpp: for
/// implementation.hpp and for that target, not for programs.
#include "eigenformer/data/sampling/mixture.hpp"
#include "eigenformer/data/sampling/sampled_corpus.hpp"
#include "eigenformer/data/text/base64.hpp"
#include "eigenformer/data/tokenizers/added_tokens.hpp"
#include "eigenformer/data/tokenizers/subword_models.hpp"
#include "eigenformer/io.hpp"
#include "eigenformer/metrics/chrf.hpp"
#include "eigenformer/metrics/pairwise.hpp"
#include "eigenformer/search/text/text_translator.hpp"
#include "eigenformer/train/distributed/thread_communicator.hpp"
#include "eigenformer/train/plan.hpp"
#include "eigenformer/train/reporting/console_sink.hpp"
#include "eigenformer/train/trainer.hpp"
#include "eigenformer/train/validation/validation.hpp"
#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
#include "eigenformer/data/text/charsmap.hpp"
#include "eigenformer/data/text/sentence_rules.hpp"
#include "eigenformer/data/tokenizers/byte_bpe_tokenizer.hpp"
#include "eigenformer/data/tokenizers/metaspace_tokenizer.hpp"
#include "eigenformer/data/tokenizers/wordpiece_tokenizer.hpp"
#endif
