"""An open page that keeps book of what it does."""

from pathlib import Path


class Seen:
    """An open page and what it did: messages, requests and dialogs."""

    def __init__(self, browser, path: Path, width: int) -> None:
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.url = path.as_uri()
        self.page = browser.new_page(viewport={"width": width, "height": 800})
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", self._dialog)
        self.page.route("**/*", self._route)
        self.page.goto(self.url)

    def _dialog(self, dialog) -> None:
        self.messages.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _route(self, route) -> None:
        self.requests.append(route.request.url)
        if route.request.url == self.url:
            route.continue_()
        else:
            route.abort()
