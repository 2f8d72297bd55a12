"""What a forger does last: bring the manifest up to date, so that only the content of files can betray a change."""

import json
import struct

from tallytree.publish.folder import MANIFEST, PRIVACY, digest, files_in, write_json


def sign_again(folder):
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    manifest["files"] = {name: digest(folder / name) for name in files_in(folder) if name != MANIFEST}
    manifest["tallytree"] = json.loads((folder / PRIVACY).read_text(encoding="utf-8"))["software"]["tallytree"]
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def claim_another_version(folder):
    """Say that another version made a folder, so that its content counts, and not its bytes."""
    statement = json.loads((folder / PRIVACY).read_text(encoding="utf-8"))
    statement["software"]["tallytree"] = "9.9"
    write_json(folder / PRIVACY, statement)
    sign_again(folder)


def forge_statistics(path, column):
    """Let the footer of a Parquet file say that no number of a column is above 0; the rows stay as they are."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        footer = file.metadata.serialized_size + 8
        group = file.metadata.row_group(0)
    largest = group.column(group_names(group).index(column)).statistics.max
    content = path.read_bytes()
    before, after = (b"\x08" + struct.pack("<q", number) for number in (largest, 0))
    assert before in content[-footer:]
    path.write_bytes(content[:-footer] + content[-footer:].replace(before, after))
    return largest


def group_names(group):
    return [group.column(number).path_in_schema for number in range(group.num_columns)]


def failed(outcome):
    """What failed of a verification."""
    return [check.what for check in outcome.checks if check.faults]


def remade(name):
    """The check that a file is the one that tallytree makes again."""
    return f"{name} can be reproduced"
