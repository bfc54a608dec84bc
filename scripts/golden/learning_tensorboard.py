#!/usr/bin/env python3
"""Reads the TensorBoard events of a run with TensorBoard's own reader.

    python scripts/golden/learning_tensorboard.py RUN_FOLDER

prints JSON: {"scalars": {tag: [[step, value], ...]}, "texts": {tag: [[step, text], ...]}}. Needs tensorboard.
"""

import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def main():
    events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0}).Reload()
    tags = events.Tags()
    scalars = {tag: [[event.step, event.value] for event in events.Scalars(tag)] for tag in tags["scalars"]}
    texts = {}
    for tag in tags["tensors"]:
        if events.SummaryMetadata(tag).plugin_data.plugin_name == "text":
            texts[tag] = [[event.step, event.tensor_proto.string_val[0].decode()] for event in events.Tensors(tag)]
    print(json.dumps({"scalars": scalars, "texts": texts}))


if __name__ == "__main__":
    main()
