# The public data files, verified; from a local mirror folder first where one is set.


rule download:
    output:
        "data/{folder}/{file}",
    log:
        "logs/download/{folder}/{file}.log",
    benchmark:
        "logs/benchmarks/download/{folder}/{file}.tsv"
    conda:
        ENVIRONMENT
    message:
        "Download {wildcards.file}"
    script:
        "../scripts/download.py"
