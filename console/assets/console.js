// Renews the live parts of a page while it is seen. Without this script a reload does the same.
(() => {
  "use strict";
  const shortest = 2000, longest = 30000, patience = 10000; // milliseconds
  if (!document.body.classList.contains("live")) return;

  let wait = shortest, timer = 0, busy = false;

  // nameOf tells links apart: by their address, and by their row, because rows share addresses.
  const nameOf = (link) => [link.getAttribute("href"), link.closest("tr")?.querySelector("th a")?.getAttribute("href")].join(" ");

  // namesakes are the links of a part that have this name.
  const namesakes = (part, name) => [...part.querySelectorAll("a[href]")].filter((a) => nameOf(a) === name);

  // replace puts new nodes in place of the children of a part. The same link keeps the focus.
  const replace = (part, fresh) => {
    const active = document.activeElement;
    const name = part.contains(active) ? nameOf(active) : null;
    const place = name === null ? 0 : namesakes(part, name).indexOf(active);
    part.replaceChildren(...fresh.childNodes);
    if (name === null) return;
    namesakes(part, name).at(place)?.focus({ preventScroll: true });
  };

  // selecting reports whether text of a part is selected, which a replacement would end.
  const selecting = (part) => {
    const s = document.getSelection();
    return s !== null && !s.isCollapsed && part.contains(s.anchorNode);
  };

  const renew = async () => {
    const answer = await fetch(location.href, {
      headers: { "Eventbus-Part": "figures" },
      cache: "no-store",
      signal: AbortSignal.timeout(patience),
    });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const state = fresh.getElementById("state");
    if (state === null) throw new Error("not a page of the console");
    for (const part of document.querySelectorAll("[data-live]")) {
      const its = fresh.getElementById(part.id);
      if (its !== null && !selecting(part)) replace(part, its);
    }
    const shown = document.getElementById("state");
    // The time alone is not worth an announcement.
    shown.setAttribute("aria-live", state.querySelector(".outage") ? "polite" : "off");
    shown.replaceChildren(...state.childNodes);
  };

  const lost = () => {
    const text = document.createElement("strong");
    text.className = "outage";
    text.textContent = "The console does not respond. This page is out of date.";
    document.getElementById("state").replaceChildren(text);
  };

  const turn = async () => {
    if (busy || document.hidden) return;
    busy = true;
    try {
      await renew();
      wait = shortest;
    } catch {
      lost();
      wait = Math.min(2 * wait, longest);
    }
    busy = false;
    clearTimeout(timer);
    timer = setTimeout(turn, wait);
  };

  document.addEventListener("visibilitychange", turn);
  timer = setTimeout(turn, wait);
})();
