"""For mkdocs: links that leave docs/ (examples, tests) have no page on the site, so their text stays without the link."""
import posixpath, re


def on_page_markdown(markdown, page, **_):
    near = posixpath.dirname(page.file.src_uri)

    def inside(match):
        text, target = match[1], match[2].partition("#")[0]
        if re.match(r"https?:", match[2]) or not posixpath.normpath(posixpath.join(near, target)).startswith(".."):
            return match[0]
        return text if text.startswith("`") else f"`{text}`"
    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", inside, markdown)
