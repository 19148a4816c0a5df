// The page says all without this. It makes titles of tables sort, and lets charts be read point by point.
"use strict";
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (body.rows.length < 2) continue;
  const titles = [...table.tHead.rows[0].cells];
  titles.forEach((title, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...title.childNodes);
    title.append(button);
    const value = (row) => {
      const cell = row.cells[column];
      return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
    };
    button.addEventListener("click", () => {
      const rows = [...body.rows];
      const numbers = rows.every((row) => row.cells[column].dataset.v !== undefined);
      const was = title.getAttribute("aria-sort");
      // Of numbers the large ones are looked for first.
      const up = was === null ? !numbers : was === "descending";
      for (const other of titles) other.removeAttribute("aria-sort");
      title.setAttribute("aria-sort", up ? "ascending" : "descending");
      rows.sort((a, b) => {
        const order = numbers ? value(a) - value(b) : String(value(a)).localeCompare(String(value(b)));
        return up ? order : -order;
      });
      body.append(...rows);
    });
  });
}

// A table that is wider than the page must be reached by keyboard to be scrolled.
const regions = [...document.querySelectorAll(".scroll")];
const reach = () => {
  for (const region of regions) {
    const wide = region.scrollWidth > region.clientWidth || region.scrollHeight > region.clientHeight;
    if (wide) {
      region.tabIndex = 0;
      region.setAttribute("role", "region");
      region.setAttribute("aria-label", "table: " + region.querySelector("caption").textContent.slice(0, 80));
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) region.removeAttribute(name);
    }
  }
};
reach();
addEventListener("resize", reach);
for (const more of document.querySelectorAll("details")) more.addEventListener("toggle", reach);

for (const chart of document.querySelectorAll(".chart")) {
  const { names, rows } = JSON.parse(chart.querySelector("script").textContent);
  const cursor = document.createElement("div");
  const line = document.createElement("span");
  const readout = document.createElement("p");
  const title = chart.querySelector("figcaption").textContent;
  cursor.className = "cursor";
  cursor.tabIndex = 0;
  cursor.append(line);
  readout.className = "readout";
  readout.hidden = true;
  chart.querySelector(".area").append(cursor);
  chart.querySelector(".plot").append(readout);
  const attributes = { role: "slider", "aria-label": title + ", point by point", "aria-valuemin": 0,
                       "aria-valuemax": rows.length - 1 };
  for (const [name, value] of Object.entries(attributes)) cursor.setAttribute(name, value);
  let at = 0;
  const words = () => rows[at][0] + ": " + names.map((name, i) => name + " " + rows[at][i + 1]).join(", ");
  const say = () => {
    cursor.setAttribute("aria-valuenow", at);
    cursor.setAttribute("aria-valuetext", words());
  };
  const show = (step) => {
    at = Math.max(0, Math.min(rows.length - 1, step));
    line.style.left = (100 * (at + 0.5)) / rows.length + "%";
    cursor.classList.add("on");
    say();
    readout.textContent = words();
    readout.hidden = false;
  };
  const hide = () => {
    cursor.classList.remove("on");
    readout.hidden = true;
  };
  say();
  cursor.addEventListener("pointermove", (event) => {
    const box = cursor.getBoundingClientRect();
    show(Math.floor((rows.length * (event.clientX - box.left)) / box.width));
  });
  cursor.addEventListener("pointerleave", hide);
  cursor.addEventListener("blur", hide);
  cursor.addEventListener("focus", () => show(at));
  cursor.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.round(rows.length / 10));
    const steps = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, PageDown: at - page,
                    PageUp: at + page, Home: 0, End: rows.length - 1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    show(steps[event.key]);
  });
}
