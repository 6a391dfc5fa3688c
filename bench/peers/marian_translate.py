"""Translates standard input with Marian's decoder: marian_translate.py MODEL SOURCE_VOCABULARY TARGET_VOCABULARY BEAM BATCH WEIGHTS

With one thread. WEIGHTS is float32 or int8, for which Marian packs the weights when it loads the model (packed8).
"""
import sys

from pymarian import Translator


def main():
    if len(sys.argv) != 7:
        sys.exit(__doc__)
    model, source, target, beam, batch, weights = sys.argv[1:]
    translator = Translator(models=model, vocabs=[source, target], beam_size=beam, normalize=1, mini_batch=batch,
                            maxi_batch=1 if batch == "1" else 100, maxi_batch_sort="none" if batch == "1" else "src", cpu_threads=1,
                            gemm_type="packed8" if weights == "int8" else "float32", workspace=512, quiet=True)
    lines = sys.stdin.read().splitlines()
    for line in translator.translate(lines) if lines else []:
        print(line)


if __name__ == "__main__":
    main()
