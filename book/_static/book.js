// On paper the book is always light: the dark theme's text is too pale without its background.
(() => {
  const root = document.documentElement;
  let shown = null;
  matchMedia("print").addEventListener("change", (media) => {
    if (media.matches) {
      shown = root.dataset.theme;
      root.dataset.theme = "light";
    } else if (shown !== null) {
      root.dataset.theme = shown;
      shown = null;
    }
    window.dispatchEvent(new Event("resize")); // for the theme, see below
  });
})();

// A page from the disk may not read others: the search lists titles, without passages.
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}

// The theme lets the keyboard into boxes that scroll, and looks for them when the window changes;
// what was folded scrolls from the moment that it is unfolded.
document.addEventListener("toggle", () => window.dispatchEvent(new Event("resize")), true);

// A figure that is wider than its box can be scrolled by keys.
(() => {
  const figures = () => {
    for (const figure of document.querySelectorAll(".bd-article figure")) {
      if (figure.scrollWidth > figure.clientWidth) figure.tabIndex = 0;
      else figure.removeAttribute("tabindex");
    }
  };
  addEventListener("load", figures); // the pictures have their size
  addEventListener("resize", figures);
})();
