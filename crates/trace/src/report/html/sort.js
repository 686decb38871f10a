// A click on a column's head sorts by it; a second click turns the order round.
for (const head of document.querySelectorAll("th button")) {
  head.addEventListener("click", () => {
    const cell = head.parentElement;
    const rows = cell.closest("table").tBodies[0];
    const column = cell.cellIndex;
    const sign = cell.getAttribute("aria-sort") === "descending" ? 1 : -1;
    for (const other of cell.parentElement.cells) other.removeAttribute("aria-sort");
    cell.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
    const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const isNumber = cell.classList.contains("number");
    const compare = (a, b) =>
      isNumber ? Number(value(a)) - Number(value(b)) : value(a).localeCompare(value(b));
    rows.append(...[...rows.rows].sort((a, b) => sign * compare(a, b)));
  });
}
