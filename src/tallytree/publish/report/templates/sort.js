// Sort a table by a column: each heading becomes a button, and cells say what they are sorted by.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (!head.dataset.sort) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "link";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      const key = (row) => row.cells[column].dataset.value || row.cells[column].textContent;
      const order = head.dataset.sort === "number"
        ? (one, other) => Number(key(one)) - Number(key(other))
        : (one, other) => key(one).localeCompare(key(other));
      const rows = [...table.tBodies[0].rows].sort((one, other) => (up ? 1 : -1) * order(one, other));
      table.tBodies[0].append(...rows);
      for (const each of heads) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
    });
  });
}
