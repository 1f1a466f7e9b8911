"""For mkdocs: links that leave docs/ (examples, tests) have no page on the site, so their text stays without the link. A bar within a
cell of a table is written `\\|` for GitHub; mkdocs would show the stroke."""
import posixpath, re


def on_page_markdown(markdown, page, **_):
    near = posixpath.dirname(page.file.src_uri)

    def inside(match):
        text, target = match[1], match[2].partition("#")[0]
        if re.match(r"https?:", match[2]) or not posixpath.normpath(posixpath.join(near, target)).startswith(".."):
            return match[0]
        return text if text.startswith("`") else f"`{text}`"
    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", inside, markdown)


def on_page_content(html, **_):
    return re.sub(r"<td>.*?</td>", lambda cell: cell[0].replace("\\|", "|"), html, flags=re.S)
