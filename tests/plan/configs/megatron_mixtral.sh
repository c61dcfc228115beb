#!/bin/bash
#SBATCH --job-name=mixtral
#SBATCH --nodes=8
#SBATCH --gpus-per-node=8
TP=2; PP=4; EP=8
MODEL_ARGS=(--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
  --group-query-attention --num-query-groups 8 --seq-length 4096 --max-position-embeddings 32768
  --swiglu --position-embedding-type rope --untie-embeddings-and-output-weights --disable-bias-linear
  --hidden-dropout 0 --attention-dropout 0 --vocab-size 32000)
MOE_ARGS=(--num-experts 8 --moe-router-topk 2 --moe-grouped-gemm --moe-token-dispatcher-type alltoall
  --moe-aux-loss-coeff 1e-2 --expert-model-parallel-size ${EP})
srun --jobid $SLURM_JOBID bash -c "python -u pretrain_gpt.py ${MODEL_ARGS[*]} ${MOE_ARGS[*]} \
  --micro-batch-size 1 --global-batch-size 256 --bf16 --sequence-parallel --use-distributed-optimizer \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --recompute-activations"
