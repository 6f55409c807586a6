"""Entry point of `python -m service COMMAND`; importing it runs nothing."""

from service.commands.application import main

if __name__ == "__main__":
    main()
