"""Translates standard input with CTranslate2 and SentencePiece: translate.py CT2_FOLDER TOKENIZER_MODEL BEAM BATCH COMPUTE_TYPE

With one thread. A batch of 1 translates one sentence after the other.
"""
import sys

import ctranslate2
import sentencepiece


def main():
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    folder, tokenizer, beam, batch, compute = sys.argv[1:]
    translator = ctranslate2.Translator(folder, compute_type=compute, inter_threads=1, intra_threads=1)
    pieces = sentencepiece.SentencePieceProcessor(model_file=tokenizer)
    texts = pieces.encode([line.rstrip("\n") for line in sys.stdin], out_type=str)
    found = translator.translate_batch(texts, beam_size=int(beam), max_batch_size=int(batch), max_decoding_length=256)
    for result in found:
        print(pieces.decode(result.hypotheses[0]))


if __name__ == "__main__":
    main()
